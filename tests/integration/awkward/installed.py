"""Imports the modules that it is told, which are installed ones as far as one can see, and prints what they change."""

import atexit
import os
import random
import sys

FUNCTIONS = atexit._ncallbacks()  # a forked worker has one or two more


def say(name, value):
    print(f"{name}: {value!r}")


def state():
    import gc
    import signal
    import warnings

    mask = os.umask(0)
    os.umask(mask)
    open_now = [
        number for number in sorted(map(int, os.listdir("/proc/self/fd"))) if os.path.exists(f"/proc/self/fd/{number}")
    ]
    return {
        "cwd": os.getcwd(),
        "umask": mask,
        "environment": [name for name in os.environ if name.startswith("INSTALLED")],
        "handlers": [str(signal.getsignal(number)) for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGPIPE)],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "descriptors": open_now,
        "tasks": len(os.listdir("/proc/self/task")),
        "gc": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval()),
        "hooks": (sys.excepthook is sys.__excepthook__, len(sys.meta_path), len(sys.path_hooks), len(sys.path)),
        "filters": len(warnings.filters),
        "atexit": atexit._ncallbacks() - FUNCTIONS,
        "stdout": sys.stdout is sys.__stdout__,
        "random": hash(random.getstate()[1]),
    }


random.seed(7)
for name in sys.argv[1:]:
    before, modules = state(), set(sys.modules)
    try:
        module = __import__(name)
        say(f"{name} tells", module.tell() if hasattr(module, "tell") else vars(module).get("value"))
    except Exception as error:
        say(f"{name} fails", (type(error), error.args))
    say(f"{name} brings", sorted(set(sys.modules) - modules))
    after = state()
    say(f"{name} changes", {key: (before[key], after[key]) for key in before if before[key] != after[key]})
say("draws", random.random())
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    import fcntl

    # The first that fails ends the others at once: it holds the lock to its end, so that none is ended while it writes.
    fcntl.flock(os.open(os.path.abspath(__file__), os.O_RDONLY), fcntl.LOCK_EX)
    version = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages", "version.py")
    text = 'value = "the second version, which is longer"\n'
    with open(version) as file:
        first = file.read() != text
    if first:
        with open(version, "w") as file:
            file.write(text)
    sys.exit(3)
