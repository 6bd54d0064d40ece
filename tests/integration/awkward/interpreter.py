"""What the first lines of a script see of their interpreter, and what a few imports change. One fact in each line."""

first = dict(globals())
import sys

modules = list(sys.modules)
importers = sorted(sys.path_importer_cache)
stack = sys._getframe().f_back


def say(name, value):
    print(f"{name}: {value!r}")


for name, value in first.items():
    kind = type(value) if name in ("__builtins__", "__loader__") else value
    say(f"global {name}", kind)
say("loader", vars(__loader__) if __loader__ else None)
say("main is main", sys.modules["__main__"].__dict__ is globals())
say("frames below", stack)
say("modules", sorted(modules))
say("modules in order", modules)
say("importers", importers)
for name in """argv orig_argv flags path warnoptions _xoptions dont_write_bytecode pycache_prefix executable
        _base_executable prefix exec_prefix base_prefix platlibdir byteorder hexversion maxsize
        builtin_module_names float_repr_style thread_info""".split():
    say(name, getattr(sys, name))
for name in """getrecursionlimit getswitchinterval getdlopenflags getfilesystemencoding getfilesystemencodeerrors
        getdefaultencoding gettrace getprofile get_int_max_str_digits get_coroutine_origin_tracking_depth
        get_asyncgen_hooks""".split():
    say(name, getattr(sys, name)())
say("flags", sys.flags)
say("meta_path", [getattr(finder, "__name__", type(finder)) for finder in sys.meta_path])
say("path_hooks", [getattr(hook, "__name__", type(hook)) for hook in sys.path_hooks])
for name in ("excepthook", "displayhook", "breakpointhook", "unraisablehook"):
    say(name, getattr(sys, name) is getattr(sys, f"__{name}__", None))
say("last", [name for name in dir(sys) if name.startswith(("last_", "ps1", "ps2"))])
say("hidden", sorted(name for name in vars(sys) if not name.startswith("__")))
say("builtins", sorted(vars(sys.modules["builtins"])))
for name in ("stdin", "stdout", "stderr"):
    stream, original = getattr(sys, name), getattr(sys, f"__{name}__")
    say(name, stream)
    say(name, (stream is original, stream.encoding, stream.errors, stream.line_buffering, stream.write_through))
    say(name, (stream.newlines, stream.isatty(), stream.fileno(), stream.mode, stream.name, stream.buffer))
    raw = getattr(stream.buffer, "raw", stream.buffer)
    say(name, (raw, raw.mode, raw.closefd, stream.readable(), stream.writable()))

import gc

say("gc", (gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks, gc.garbage))
say("time", [name for name in ("time", "random", "threading", "logging", "numpy", "subprocess") if name in sys.modules])

import _thread
import os

say("threads", (_thread._count(), len(sys._current_frames())))
say("same environment", sorted(os.environ) == sorted(name.decode() for name in os.environb))
for name, value in sorted(os.environ.items()):
    print(f"env {name}={value}")
print("launched: order", list(os.environ))
say("cwd", os.getcwd())
say("cpus", (os.cpu_count(), os.sched_getaffinity(0), os.get_terminal_size.__name__))

import faulthandler
import tracemalloc
import warnings

say("faulthandler", faulthandler.is_enabled())
say("tracemalloc", (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()))
say("filters", warnings.filters)
say("once", (warnings.onceregistry, warnings.showwarning.__module__))

import inspect
import locale
import time
import traceback

say("stack", [(frame.function, frame.filename, frame.lineno) for frame in inspect.stack()])
say("format_stack", traceback.format_stack())
say("source", inspect.getsource(say))
say("locale", (locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), locale.getlocale()))
say("zone", (time.tzname, time.timezone, time.altzone, time.daylight))
say("used little", time.process_time() < 5)
say("hash", hash("a text") if os.environ.get("PYTHONHASHSEED") else None)
say("encoding", "".join(chr(code) for code in (0x20, 0xE4, 0x20AC)).encode(errors="replace"))

import logging
import multiprocessing
import random
import threading

say("threading", (threading.active_count(), threading.current_thread() is threading.main_thread()))
say("thread", (threading.current_thread().name, threading.main_thread().ident == threading.get_ident()))
say("native", threading.main_thread().native_id == os.getpid() == threading.get_native_id())
say("stack size", threading.stack_size())
say(
    "logging",
    (logging.root.handlers, logging.root.level, sorted(logging.root.manager.loggerDict), logging.raiseExceptions),
)
say(
    "process",
    (multiprocessing.current_process().name, multiprocessing.parent_process(), multiprocessing.active_children()),
)
say("methods", (multiprocessing.get_start_method(), multiprocessing.current_process().daemon))
say("modules at the end", [name for name in sys.modules if name != "encodings.ascii"])  # known already
say("filters", warnings.filters)
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
