"""Runs statements in a fresh interpreter, one after the other, and says as JSON what each read, drew, and left behind.

`test_imports_ahead.py` runs it as `python probe.py ORDERS`, where ORDERS is JSON: `statements` to run, code to run
`before` and `after` them unwatched, whether the `values` of the modules are wanted, whether the output is a `terminal`.
`witness.c` has to be loaded. Nothing but the standard library is imported here.
"""

import _thread
import atexit
import ctypes
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import types
import uuid
import warnings

HERE = __file__
STDLIB = os.path.dirname(os.__file__)
SITE = os.path.join(STDLIB, "site-packages")
Noted = dict[str, set[str]]


class Notes:
    """What was seen during one statement: what it was -> which modules did it."""

    def __init__(self) -> None:
        self.all: dict[str, Noted] = {}
        self.active = False

    def add(self, kind: str, what: object, depth: int = 2) -> None:
        if self.active:
            self.active = False
            self.all.setdefault(kind, {}).setdefault(str(what), set()).add(_who(sys._getframe(depth)))
            self.active = True


notes = Notes()


def _is_stdlib(file: str) -> bool:
    return file.startswith(("<frozen", f"{STDLIB}/")) and not file.startswith((SITE, HERE))


def _who(frame: types.FrameType | None) -> str:
    """The module on top of the stack. Where that is of the standard library: for whom, "numpy via logging"."""
    means = ("<frozen os>", "<frozen _collections_abc>", "/os.py", "/_collections_abc.py", "<frozen importlib")
    first = ""
    while frame is not None and frame.f_code.co_filename != HERE:
        file = frame.f_code.co_filename
        if not _is_stdlib(file) and not file.startswith("<"):
            name = str(frame.f_globals.get("__name__"))
            return f"{name} via {first}" if first else name
        if not first and not file.endswith(means) and not file.startswith(means):
            first = str(frame.f_globals.get("__name__"))
        frame = frame.f_back
    return first or "importlib"


# -- the environment in Python


def _watch_environment() -> None:
    kind = type(os.environ)
    held = os.environ.__dict__["_data"]
    own = ("<frozen os>", os.__file__)

    class Watched(kind):  # type: ignore[valid-type, misc]
        def __getitem__(self, name: object) -> object:
            notes.add("reads", os.fsdecode(name))  # type: ignore[arg-type]
            return super().__getitem__(name)

        def __iter__(self) -> object:
            notes.add("walks", "os.environ")
            return super().__iter__()

        def __len__(self) -> int:
            notes.add("walks", "os.environ")
            return super().__len__()

        def __repr__(self) -> str:
            notes.add("walks", "os.environ")
            return super().__repr__()

        def __setitem__(self, name: object, value: object) -> None:
            notes.add("sets", f"{os.fsdecode(name)}={os.fsdecode(value)}")  # type: ignore[arg-type]
            super().__setitem__(name, value)

        def __delitem__(self, name: object) -> None:
            notes.add("sets", os.fsdecode(name))  # type: ignore[arg-type]
            super().__delitem__(name)

        @property
        def _data(self) -> object:
            if sys._getframe(1).f_code.co_filename not in own:
                notes.add("walks", "os.environ._data")
            return held

        @_data.setter
        def _data(self, value: object) -> None:
            notes.add("walks", "os.environ._data")

    os.environ.__class__ = os.environb.__class__ = Watched
    import posix

    class WatchedNative(dict):  # type: ignore[type-arg]
        """Each way to read it, of which the C functions of a dict would not be seen."""

        def __getattribute__(self, name: str) -> object:
            notes.add("walks", f"posix.environ.{name}")
            return super().__getattribute__(name)

        def __iter__(self) -> object:
            notes.add("walks", "posix.environ")
            return super().__iter__()

        def __getitem__(self, name: object) -> object:
            notes.add("walks", "posix.environ")
            return super().__getitem__(name)

        def __contains__(self, name: object) -> bool:
            notes.add("walks", "posix.environ")
            return super().__contains__(name)

        def __len__(self) -> int:
            notes.add("walks", "posix.environ")
            return super().__len__()

    posix.environ = WatchedNative(posix.environ)  # type: ignore[assignment]


# -- time, randomness, threads, handlers


def _watch_call(owner: object, name: str, kind: str) -> None:
    own = getattr(owner, name, None)
    if own is None:
        return
    said = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"

    def watched(*args: object, **kwargs: object) -> object:
        notes.add(kind, said)
        return own(*args, **kwargs)

    watched.__name__ = watched.__qualname__ = name
    setattr(owner, name, watched)


def _watch_calls() -> None:
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"):
        _watch_call(time, name, "time")
    for name in ("localtime", "gmtime", "strftime", "ctime", "asctime"):
        _watch_call(time, name, "time")
    for owner, names in (
        (os, ("urandom", "getrandom")),
        (random, ("_urandom", *(name for name in random.__all__ if name[0].islower() and name not in ("getstate",)))),
        (uuid, ("uuid1", "uuid4", "getnode")),
        (tempfile, ("mkstemp", "mkdtemp", "mktemp", "gettempdir", "TemporaryDirectory", "NamedTemporaryFile")),
    ):
        for name in names:
            _watch_call(owner, name, "draws")
    for name in ("getpid", "getppid", "getcwd", "getlogin", "isatty", "get_terminal_size", "cpu_count"):
        _watch_call(os, name, "process")
    for name in ("fork", "register_at_fork", "umask", "setpgid", "setsid", "nice", "sched_setaffinity"):
        _watch_call(os, name, "process")
    _watch_call(atexit, "register", "at exit")
    for name in ("signal", "set_wakeup_fd", "setitimer", "alarm", "siginterrupt"):
        _watch_call(signal, name, "signal")
    _watch_call(_thread, "start_new_thread", "thread")
    # `datetime.now` belongs to a type that cannot be changed. What it leaves is seen in the values: the date differs.


AUDITED = ("socket", "os.", "shutil", "tempfile", "resource.set", "mmap", "sqlite3", "urllib")


def _audit(event: str, args: tuple[object, ...]) -> None:
    if not notes.active:
        return
    if event == "open":
        path, _, flags = args
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        notes.add("writes" if writes else "opens", path)
    elif event in ("os.listdir", "os.scandir", "glob.glob"):
        notes.add("opens", args[0])
    elif event.startswith(("subprocess", "os.fork", "os.posix_spawn", "os.exec", "os.system", "pty")):
        notes.add("starts", args[0] if args else event)
    elif event.startswith(AUDITED) and event not in ("os.putenv", "os.unsetenv"):
        notes.add("calls", f"{event} {args!r}"[:200])


# -- what is left


def _files() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = re.sub("[0-9]{4,}", "", os.readlink(f"/proc/self/fd/{name}"))  # a pipe's number
        except OSError:
            continue
    return found


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _available(output: int) -> str:
    try:
        return os.read(output, 4000).decode(errors="replace")
    except BlockingIOError:
        return ""


def _threads() -> list[str]:
    own = str(os.getpid())
    tasks = sorted(os.listdir("/proc/self/task"), key=lambda task: (task != own, task))
    return [_read(f"/proc/self/task/{task}/comm").strip() for task in tasks]


def _threads_after_a_fork() -> list[str]:
    """Some libraries end their threads before a fork and begin them again where they are needed."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return _threads()


def _threads_in_a_fork() -> int:
    """How many there are in the child, after the handlers that libraries run in it."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, str(len(os.listdir("/proc/self/task"))).encode())
        os._exit(0)
    os.close(theirs)
    count = int(os.read(ours, 16))
    os.close(ours)
    os.waitpid(pid, 0)
    return count


def state() -> dict[str, object]:
    """What an import may leave in the process, beyond modules."""
    status = dict(line.split(":\t", 1) for line in _read("/proc/self/status").splitlines() if ":\t" in line)
    shared = sorted(
        line.split(None, 5)[-1].strip()
        for line in _read("/proc/self/maps").splitlines()
        if "w" in line.split()[1] and "s" in line.split()[1]
    )
    found: dict[str, object] = {
        "files": _files(),
        "handlers in C": [status.get(name, "").strip() for name in ("SigCgt", "SigIgn", "SigBlk")],
        "handlers": {number: _said(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
        "shared memory": shared,
        "children": _read(f"/proc/self/task/{os.getpid()}/children").split(),
        "folder": os.getcwd(),
        "umask": status.get("Umask", ""),
        "limits": _read("/proc/self/limits"),
        "cores": sorted(os.sched_getaffinity(0)),
        "path": list(sys.path),
        "recursion": sys.getrecursionlimit(),
        "hooks": [_said(hook) for hook in (sys.excepthook, sys.displayhook, sys.breakpointhook, sys.unraisablehook)],
        "tracing": [_said(sys.gettrace()), _said(sys.getprofile()), sys.getswitchinterval()],
        "numbers": hash(repr(random.getstate())),
        "language": __import__("locale").setlocale(__import__("locale").LC_ALL),
    }
    logging = sys.modules.get("logging")
    if logging is not None:
        root = logging.getLogger()
        found["logging"] = [root.level, [_said(handler) for handler in root.handlers], logging.root.manager.disable]
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = [
            str(torch.get_default_dtype()),
            str(torch.get_default_device()),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cuda.matmul.allow_tf32,
            torch.cuda.is_initialized(),
        ]
        found["numbers of torch"] = hash(str(torch.get_rng_state().tolist()))
    numpy = sys.modules.get("numpy.random.mtrand")
    if numpy is not None:
        found["numbers of numpy"] = hash(str(numpy.get_state()))
    return found


def _said(value: object) -> str:
    return f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


# -- the values of modules

SIMPLE = (int, float, complex, str, bytes, bool, type(None), types.EllipsisType)
DEEPEST = 6
ADDRESSES = range(1 << 44, 1 << 48)
"""What `id` answers differs in each process, also without an import ahead. Dates in nanoseconds are greater."""


def fingerprint(modules: list[str]) -> dict[str, str]:
    """Each simple value that can be reached from the globals of these modules: its path -> its text."""
    found: dict[str, str] = {}
    seen: dict[int, object] = {}
    for name in modules:
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType):
            for key, value in sorted(vars(module).items()):
                if key not in ("__builtins__", "__cached__", "__loader__", "__spec__"):
                    _walk(f"{name}.{key}", value, 0, found, seen, name)
    return found


def _walk(path: str, value: object, depth: int, found: dict[str, str], seen: dict[int, object], module: str) -> None:
    if isinstance(value, SIMPLE):
        found[path] = _key(value)[:300]
        return
    if id(value) in seen or depth > DEEPEST or isinstance(value, (types.ModuleType, os._Environ)):
        return
    seen[id(value)] = value  # kept, so that no other object gets its address
    deeper = depth + 1
    kind = type(value)
    try:
        if isinstance(value, dict):
            for key, inner in sorted(value.items(), key=lambda item: _key(item[0])):
                _walk(f"{path}[{_key(key)}]", inner, deeper, found, seen, module)
            found[f"{path}.keys"] = repr(sorted(_key(key) for key in list(value)))[:2000]
        elif isinstance(value, (list, tuple)):
            for number, inner in enumerate(list(value)):
                _walk(f"{path}[{number}]", inner, deeper, found, seen, module)
        elif isinstance(value, (set, frozenset)):
            found[path] = repr(sorted(_key(inner) for inner in list(value)))[:2000]
        elif isinstance(value, types.FunctionType):
            _walk(f"{path}.__defaults__", value.__defaults__, deeper, found, seen, module)
            _walk(f"{path}.__kwdefaults__", value.__kwdefaults__, deeper, found, seen, module)
            _walk(f"{path}.__dict__", value.__dict__, deeper, found, seen, module)
            for number, cell in enumerate(value.__closure__ or ()):
                try:
                    _walk(f"{path}.__closure__[{number}]", cell.cell_contents, deeper, found, seen, module)
                except ValueError:
                    continue
        elif isinstance(value, type):
            if value.__module__ == module:
                for key, inner in sorted(vars(value).items()):
                    inner = inner.__func__ if isinstance(inner, (staticmethod, classmethod)) else inner
                    if not key.startswith("__") or isinstance(inner, types.FunctionType):
                        _walk(f"{path}.{key}", inner, deeper, found, seen, module)
        elif opaque := _opaque(value):
            found[path] = opaque
        elif kind.__module__ not in ("builtins", "types"):
            if isinstance(getattr(value, "__dict__", None), dict):
                for key, inner in list(vars(value).items()):
                    _walk(f"{path}.{key}", inner, deeper, found, seen, module)
            for base in kind.__mro__:
                slots = vars(base).get("__slots__", ())
                for slot in (slots,) if isinstance(slots, str) else slots:
                    descriptor = vars(base).get(slot)
                    if isinstance(descriptor, types.MemberDescriptorType):
                        try:
                            inner = descriptor.__get__(value)
                        except AttributeError:
                            continue
                        _walk(f"{path}.{slot}", inner, deeper, found, seen, module)
            found[f"{path}.type"] = kind.__qualname__
    except (RuntimeError, TypeError, ValueError, AttributeError, ImportError) as error:
        found[path] = f"not to be read: {type(error).__name__}"


def _opaque(value: object) -> str:
    """The text of what keeps its state in native code: generators of random numbers, arrays, dates, paths."""
    kind = type(value)
    match kind.__module__.partition(".")[0], kind.__qualname__:
        case "random" | "numpy", "Random" | "RandomState":
            state = getattr(value, "getstate", None) or value.get_state  # type: ignore[attr-defined]
            return str(hash(repr(state())))
        case "numpy", "Generator":
            bits = value.bit_generator  # type: ignore[attr-defined]
            return f"{bits.state} {bits.seed_seq}"
        case "numpy", "ndarray":
            padded = value.dtype.char in "gG"  # type: ignore[attr-defined]  # with bytes that nobody sets
            held = value.tolist() if padded or value.dtype.hasobject else value.tobytes()  # type: ignore[attr-defined]
            return f"{value.dtype} {value.shape} {hash(re.sub('0x[0-9a-f]+', '0x', repr(held)))}"  # type: ignore[attr-defined]
        case "torch", "Generator":
            return str(value.initial_seed())  # type: ignore[attr-defined]
        case "torch", "Tensor" | "Parameter" if value.device.type == "cpu":  # type: ignore[attr-defined]
            return f"{value.dtype} {value.shape} {value.flatten()[:64].tolist()}"  # type: ignore[attr-defined]
        case "datetime" | "decimal" | "fractions" | "pathlib" | "uuid" | "re", _:
            return re.sub("0x[0-9a-f]+", "0x", repr(value))[:300]
    return ""


def _key(key: object) -> str:
    if isinstance(key, int) and ADDRESSES.start <= key < ADDRESSES.stop:
        return "an address"
    if isinstance(key, SIMPLE):
        return repr(key)
    if isinstance(key, (tuple, frozenset)):
        return f"({', '.join(sorted(map(_key, key)) if isinstance(key, frozenset) else map(_key, key))})"
    return f"{type(key).__name__} {getattr(key, '__module__', '')}.{getattr(key, '__qualname__', '')}"


def main(orders: dict[str, object]) -> None:
    witness = ctypes.CDLL(None)
    log = int(os.environ["WITNESS_LOG"])
    for name in ("WITNESS_LOG", "WITNESS_GUARD", "WITNESS_SHIFT", "LD_PRELOAD"):
        os.environ.pop(name, None)
    answer, complaints = os.dup(1), os.fdopen(os.dup(2), "w")
    sys.excepthook = lambda *error: traceback.print_exception(*error, file=complaints)
    printed, output = os.openpty() if orders.get("terminal") else os.pipe()
    os.set_blocking(printed, False)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    namespace: dict[str, object] = {"__name__": "statements"}
    warnings.simplefilter("ignore")
    exec(str(orders.get("before", "")), namespace)
    _watch_environment()
    _watch_calls()
    sys.addaudithook(_audit)
    steps: list[dict[str, object]] = []
    loaded: list[str] = []
    for statement in orders["statements"]:  # type: ignore[attr-defined]
        notes.all = {}
        os.ftruncate(log, 0)
        os.lseek(log, 0, os.SEEK_SET)
        before, modules = state(), set(sys.modules)
        error = ""
        began = time.perf_counter()
        notes.active = True
        witness.witness_watch(1)
        try:
            exec(statement, namespace)
        except Exception as caught:  # noqa: BLE001 - reported, and judged by the test
            error = f"{type(caught).__name__}: {caught}"
        finally:
            witness.witness_watch(0)
            notes.active = False
        seconds = time.perf_counter() - began
        after = state()
        new = [name for name in sys.modules if name not in modules]
        loaded += new
        threads = _threads()
        if len(threads) > 1:
            threads = _threads_after_a_fork()
        sys.stdout.flush()
        sys.stderr.flush()
        native: Noted = {}
        os.lseek(log, 0, os.SEEK_SET)
        with os.fdopen(os.dup(log), errors="replace") as lines:
            for line in lines:
                kind, _, rest = line.rstrip("\n").partition("\t")
                what, _, library = rest.partition("\t")
                native.setdefault(kind, set()).add(f"{what}\t{library}")
        steps.append(
            {
                "statement": statement,
                "error": error,
                "seconds": round(seconds, 2),
                "modules": new,
                "tops": sorted({name.partition(".")[0] for name in new} - set(sys.stdlib_module_names)),
                "python": {kind: {what: sorted(who) for what, who in all.items()} for kind, all in notes.all.items()},
                "native": {kind: sorted(lines) for kind, lines in native.items()},
                "changed": {
                    key: [before.get(key), value]
                    for key, value in after.items()
                    if before.get(key, value) != value or (key not in before and key == "logging")
                },
                "threads": threads,
                "threads in a fork": _threads_in_a_fork() if len(threads) > 1 else 1,
                "printed": _available(printed),
            }
        )
    exec(str(orders.get("after", "")), namespace)
    ours = sys.modules["__main__"]
    names = [name for name in loaded if sys.modules.get(name) is not ours]
    done = {"steps": steps, "values": fingerprint(names) if orders.get("values") else {}, "state": state()}
    with os.fdopen(answer, "w") as file:
        json.dump(done, file)
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
