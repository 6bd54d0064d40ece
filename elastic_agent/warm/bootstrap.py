"""The life of a warm interpreter, and the making of a worker out of it.

It is started with a worker's own command line, stops in the middle of Python's start-up, and is told by its agent what
to import. Each import that may be a hazard is tried by a fork of this process: where it went well, the fork is the warm
interpreter from then on; where not, this process goes on without it. So a module that prints, starts threads or crashes
is left to the workers, and what came before it is not lost.

Then it waits for orders. A worker is forked twice, so that its parent is the agent and not this process, which may be
replaced at any time. It makes itself as a fresh interpreter would be and returns into Python's start-up.
"""

from __future__ import annotations

import _socket
import atexit
import gc
import os
import select
import sys
import time

from . import native, specs
from .frames import VARIABLE, pack, unpack
from .hazards import Watch, added_to, in_words, is_engaged, printed
from .imports import Group, Stash, Surroundings, set_variables
from .learner import Learner, tell
from .prefix import leading_imports
from .repairs import REPAIRS
from .step import Step

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

NEEDS_DESTRUCTORS = frozenset(["h5py", "tables", "netCDF4", "mpi4py"])
"""Libraries that write something when C's `exit` runs."""

SLOW_DESTRUCTORS = frozenset(["torch"])
"""Libraries whose destructors take long, and write nothing."""

HEAD_START_SECONDS = 0.01
"""With torch, rank 0 begins so much earlier than the others, on all nodes: it opens the store at which they meet, and
who comes before that tries again only after some tenths of a second (torch's TCPStore)."""

NOT_FORKED = 70
"""Exit code of a worker whose maker did not live to say that it had made it."""

_LEAST_URGENT = 19

_SIGKILL = 9

_OWN = "elastic_agent/warm/bootstrap.py"

_SOL_SOCKET, _SCM_RIGHTS = _socket.SOL_SOCKET, _socket.SCM_RIGHTS


class _Orders:
    """What the agent said first.

    Attributes:
        kind, target: as in the launcher's `Command`.
        steps: what to import; None: what the script itself begins with.
        per_worker: variables that differ from worker to worker.
        news: a path that workers write to; empty: nobody listens.
        gently: the imports are not urgent.
    """

    __slots__ = ("gently", "kind", "news", "per_worker", "steps", "target")

    def __init__(self, words: Sequence[bytes]) -> None:
        texts = [os.fsdecode(word) for word in words]
        self.kind, self.target, self.news = texts[1:4]
        self.gently = texts[4] == "gently"
        self.per_worker = frozenset(texts[5].split(",")) - {""}
        self.steps = None if texts[6] == "?" else texts[7:]


class _Connection:
    """To the agent."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = _socket.socket(fileno=descriptor)
        self._rest = b""
        self._frames: list[list[bytes]] = []
        self._descriptors: list[int] = []

    def say(self, *words: str) -> None:
        self._socket.sendall(pack(os.fsencode(word).replace(b"\0", b"?") for word in words))

    def hear(self) -> tuple[list[bytes], list[int]]:
        """The next frame, and the descriptors that came with it; ends the process at the end of the connection."""
        while not self._frames:
            data, ancillary, _, _ = self._socket.recvmsg(65536, _socket.CMSG_SPACE(4 * 250))
            for level, kind, body in ancillary:
                if level == _SOL_SOCKET and kind == _SCM_RIGHTS:
                    whole = len(body) // 4 * 4
                    self._descriptors += [int.from_bytes(body[at : at + 4], sys.byteorder) for at in range(0, whole, 4)]
            if not data:
                os._exit(0)
            frames, self._rest = unpack(self._rest + data)
            self._frames += frames
        descriptors, self._descriptors = self._descriptors, []
        return self._frames.pop(0), descriptors

    def close(self) -> None:
        self._socket.close()


def run(here: str, before: set[str], folders: set[str]) -> None:
    """Returns in a worker only.

    Args:
        here: the folder that Python found us in.
        before: the names in `sys.modules` before this package came.
        folders: those in `sys.path_importer_cache`.
    """
    problem = _changed_already()
    connection_number, output, python_path = os.environ.pop(VARIABLE).split(",", 2)
    if python_path:
        os.environ["PYTHONPATH"] = python_path[1:]
    else:
        del os.environ["PYTHONPATH"]
    sys.path.remove(here)
    connection = _Connection(int(connection_number))
    orders = _Orders(connection.hear()[0])
    # Nothing of what this package needed is to be seen: whoever imports it gets it anew.
    for name in set(sys.modules) - before:
        del sys.modules[name]
    for folder in set(sys.path_importer_cache) - folders:
        del sys.path_importer_cache[folder]
    try:
        zygote = _Zygote(connection, orders, int(output))
        # Before all others, and so run after them: what they do may import what is hidden.
        atexit.register(zygote.end)
        zygote.customize(problem)
        zygote.warm_up()
        zygote.serve()
    except BrokenPipeError:  # whoever it was said to is gone
        os._exit(NOT_FORKED)
    except BaseException as error:  # noqa: BLE001 - or Python would go on, and run the script here
        connection.say("unfit", f"fails: {type(error).__name__}: {error}")
        os._exit(NOT_FORKED)


class _Zygote:
    def __init__(self, connection: _Connection, orders: _Orders, output: int) -> None:
        self._connection = connection
        self._orders = orders
        self._output = output
        os.set_inheritable(output, False)
        os.set_blocking(output, False)
        self._stash = Stash(REPAIRS, self._spoiled)
        self._environment: dict[str, str] = {}
        self._installed = _installed()
        self._last: Callable[[], None] = gc.unfreeze

    def end(self) -> None:
        """Runs last in a worker."""
        specs.end()
        self._last()

    def _is_local(self, thing: Any) -> bool:
        """Whether a module (or its spec) is the user's own code: neither Python's nor installed beside it."""
        spec: Any = thing if hasattr(thing, "submodule_search_locations") else getattr(thing, "__spec__", None)
        where = getattr(spec, "origin", None) or getattr(thing, "__file__", None)
        if not isinstance(where, str) or not where.startswith("/"):
            return False  # built in, or made by another module
        return not where.startswith(self._installed)

    # Warming up.

    def customize(self, problem: str) -> None:
        """A user's own module of that name comes before everything else, as it does without us.

        It runs once, and not in each worker: this process ends where that, or `problem`, makes a difference.
        """
        watch = Watch(self._output, self._orders.per_worker)
        with watch:
            try:
                import sitecustomize  # noqa: F401  # pyright: ignore
            except ImportError as error:
                if error.name != "sitecustomize":
                    raise
        if not problem and watch.written:
            problem = f"changes the environment ({', '.join(watch.written)})"
        if problem or (problem := watch.found()):
            self._connection.say("unfit", problem)
            os._exit(0)

    def warm_up(self) -> None:
        """Imports what it may, and tells the agent what it did and what not."""
        orders = self._orders
        self._connection.say("folders", *(folder[:-1] for folder in self._installed[:-1]))
        usual = _less_urgent() if orders.gently else None
        first = _first_path(orders.kind, orders.target)
        lists = [list(listed) for listed in added_to()]
        if first is not None:
            sys.path.insert(0, first)
        automatic = gc.isenabled()
        gc.disable()
        groups: list[Group] = []
        try:
            for text in orders.steps if orders.steps is not None else leading_imports(orders.kind, orders.target):
                if not self._step(text, groups):
                    break
        finally:
            if automatic:
                gc.enable()
        self._stash.hide(groups, lists)
        # The namespace of the script is there already. It stays with what Python takes apart at the end.
        main: Any = sys.modules["__main__"]
        with native.untracked(main, main.__dict__):
            gc.freeze()
        if usual is not None:
            os.setpriority(os.PRIO_PROCESS, 0, usual)
        self._connection.say("ready", str(self._stash.modules))

    def _step(self, text: str, groups: list[Group]) -> bool:
        """Makes one import; False where this process cannot go on from there."""
        step = Step(text)
        if step.name in sys.modules and step.needs_nothing:
            return True
        self._connection.say("trying", step.name)
        verdict, told = os.pipe()
        pid = os.fork()
        if pid:
            os.close(told)
            word, output = self._wait_for(verdict)
            os.close(verdict)
            if word == b"well":
                if not output:
                    os._exit(0)  # the fork goes on in this process's place
                os.kill(pid, _SIGKILL)
            _, status = os.waitpid(pid, 0)
            problem = in_words(output) or word.decode(errors="replace")
            if not word:
                problem = f"ends the process (status {status})"
            self._connection.say("refused", step.name, problem)
            return False
        os.close(verdict)
        problem = self._import(step, groups)
        if problem:
            os.write(told, problem.encode(errors="replace")[:4000])
            os._exit(0)
        parent = os.getppid()
        os.write(told, b"well")
        os.close(told)
        while os.getppid() == parent:
            os.sched_yield()  # a moment: it has nothing left to do but to end
        native.die_with_parent()
        self._connection.say("imported", text)
        return True

    def _wait_for(self, verdict: int) -> tuple[bytes, bytes]:
        """What a fork says when its import is over, in one piece, and how that begins what it has printed.

        This is taken as it comes, or a fork that prints more than a pipe holds would wait forever.
        """
        word: bytes | None = None
        output = b""
        ends = select.poll()
        ends.register(verdict, select.POLLIN)
        ends.register(self._output, select.POLLIN)
        while word is None:
            if any(descriptor == verdict for descriptor, _ in ends.poll()):
                word = os.read(verdict, 4096)
            output = (output + printed(self._output))[:1024]  # after the word, so that no output before it is missed
        return word, output

    def _import(self, step: Step, groups: list[Group]) -> str:
        """Why it was not imported, or should not have been; empty where all is well."""
        set_variables(step.environment)
        if step.path is not None:
            sys.path[:] = step.path
        before, folders = set(sys.modules), set(sys.path_importer_cache)
        watch = Watch(self._output, self._orders.per_worker)
        try:
            with watch:
                __import__(step.name)
        except ImportError as error:
            return f"cannot be imported ({error})"
        except BaseException as error:  # noqa: BLE001 - told, and the script meets it in its own time
            return f"raises {type(error).__name__} ({error})"
        if problem := watch.found():
            return problem
        new = [found for found in sys.modules if found not in before]
        for found in new:
            if self._is_local(sys.modules[found]):
                return f"imports {found}, which is not installed but a part of the script"
        modules = {found: sys.modules[found] for found in new}
        looked = {folder: finder for folder, finder in sys.path_importer_cache.items() if folder not in folders}
        added = watch.added or []
        groups.append(Group(step, modules, watch.written, added, watch.drawn, looked))
        return ""

    # Forking.

    def serve(self) -> None:
        """Forks workers as it is told. Returns in a worker only."""
        while True:
            words, descriptors = self._connection.hear()
            if words[0] == b"fork" and self._fork(words[1:], descriptors):
                return

    def _fork(self, words: Sequence[bytes], descriptors: Sequence[int]) -> bool:
        """Forks one worker for each two descriptors; True in a worker.

        `words`: the agent's pid, whether one of them tells what its script imports, and for each worker the size of its
        environment, and that environment.
        """
        agent, may_learn, rest = int(words[0]), words[1] == b"learn", list(words[2:])
        environments: list[list[bytes]] = []
        while rest:
            end = 1 + int(rest[0])
            environments.append(rest[1:end])
            rest = rest[end:]
        first, others, made = os.pipe(), os.pipe(), os.pipe()  # rank 0 waits at the first, the others at the second
        maker = os.fork()
        if maker == 0:
            for number, environment in enumerate(environments):
                gate = (first if b"RANK=0" in environment else others)[0]
                try:
                    pid = os.fork()
                except OSError as error:
                    os.write(made[1], (error.strerror or str(error)).encode())
                    os._exit(1)
                if pid == 0:
                    os.setsid()  # before the agent can hear of this worker, and want to stop its session
                    for end in {*first, *others, *made} - {gate}:
                        os.close(end)
                    streams = descriptors[2 * number], descriptors[2 * number + 1]
                    # Not the first, for whom the others wait.
                    learns = may_learn and number == len(environments) - 1
                    self._become(agent, gate, streams, descriptors, environment, learns=learns)
                    return True
                os.write(made[1], b"%d " % pid)
            os._exit(0)
        for descriptor in (made[1], *descriptors):
            os.close(descriptor)
        told = _read_all(made[0])
        # From here on the workers are the agent's children.
        if os.waitpid(maker, 0)[1] == 0:
            self._connection.say("forked", *told.decode().split())
            os.write(first[1], b"!")
            if self._stash.has("torch"):
                time.sleep(HEAD_START_SECONDS)
            os.write(others[1], b"!" * len(environments))
        else:
            self._connection.say("failed", told.decode(errors="replace").lstrip("0123456789 ") or "its fork was killed")
        for descriptor in (*first, *others, made[0]):
            os.close(descriptor)
        return False

    def _become(
        self,
        agent: int,
        gate: int,
        streams: tuple[int, int],
        descriptors: Sequence[int],
        environment: list[bytes],
        *,
        learns: bool,
    ) -> None:
        """Makes this process the worker that it was forked for."""
        if not os.read(gate, 1):
            os._exit(NOT_FORKED)  # nobody knows of this worker
        os.close(gate)
        native.die_with_parent()  # its maker was collected before the gate was opened
        if os.getppid() != agent:
            os._exit(NOT_FORKED)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        for descriptor in (*descriptors, self._output):
            os.close(descriptor)
        self._connection.close()
        _set_environment(environment)
        native.show_environment(environment)
        stash = self._stash
        first = _first_path(self._orders.kind, self._orders.target)
        surroundings = Surroundings(sys.path if first is None else [first, *sys.path])
        self._environment = dict(os.environ)
        if stash.names:
            stash.begin(surroundings)
        if learns:
            learner = Learner(self._orders.news, surroundings, self._is_local, self._orders.per_worker)
            stash.revealed = learner.accept
            specs.add(learner.look)
        slow = any(map(stash.has, SLOW_DESTRUCTORS)) and not any(map(stash.has, NEEDS_DESTRUCTORS))
        if slow and not native.is_instrumented():
            native.end_without_destructors()
            self._last = stash.keep
        # Else it is unfrozen: what was imported ahead is taken apart with the script's own.

    def _spoiled(self, name: str, why: str) -> None:
        """What was imported ahead does not fit: begin again as a fresh interpreter, in this very process.

        Returns where it is too late for that, because others may know this process already.
        """
        assert self._stash.surroundings is not None
        if is_engaged():
            tell(self._orders.news, "late", name, why)
            return
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()  # pyright: ignore[reportOptionalMemberAccess]
            except Exception:  # noqa: BLE001 - none, one of the script's own, or a broken pipe: it cannot be told
                continue
        os.chdir(self._stash.surroundings.cwd)
        tell(self._orders.news, "spoiled", name, why)
        os.execvpe(sys.orig_argv[0], sys.orig_argv, self._environment)


def _changed_already() -> str:
    """What code that Python runs in its start-up (lines in .pth files) has made of the environment, in words."""
    with open("/proc/self/environ", "rb") as file:
        given = {entry.partition(b"=")[0]: entry.partition(b"=")[2] for entry in file.read().split(b"\0") if entry}
    now = dict(os.environb)
    # This one Python itself sets, in the agent as well.
    names = sorted(name for name in {*given, *now} - {b"LC_CTYPE"} if given.get(name) != now.get(name))
    return f"changes the environment ({', '.join(map(os.fsdecode, names))})" if names else ""


def _less_urgent() -> int | None:
    """Gives way to every other process; returns the priority to come back to, None where there would be no way back."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    pid = os.fork()
    if pid == 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, _LEAST_URGENT)
            os.setpriority(os.PRIO_PROCESS, 0, usual)
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        return None
    os.setpriority(os.PRIO_PROCESS, 0, _LEAST_URGENT)
    return usual


def _set_environment(entries: Sequence[bytes]) -> None:
    """Makes the environment these entries (NAME=value), in this order, for Python and for native code."""
    os.environ.clear()
    for entry in entries:
        name, _, value = entry.partition(b"=")
        os.environ[os.fsdecode(name)] = os.fsdecode(value)


def _first_path(kind: str, target: str) -> str | None:
    """What Python will put first on `sys.path` for the script; None where it puts nothing."""
    if getattr(sys.flags, "safe_path", False):
        return None
    if kind == "script":
        # Python follows a link to the script.
        return os.path.dirname(os.path.realpath(target))
    return os.getcwd()


def _installed() -> tuple[str, ...]:
    """Where Python's own modules are, and those that are installed beside it; and this package, wherever it is."""
    found = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    ours = [f"{path}/elastic_run" for path in sys.path if _is_same(f"{path}/elastic_run/{_OWN}", __file__)]
    return (*(f"{path}/" for path in (*found, *ours)), f"{os.path.dirname(os.__file__)}/")


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _read_all(descriptor: int) -> bytes:
    found = b""
    while data := os.read(descriptor, 65536):
        found += data
    return found
