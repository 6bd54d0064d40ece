"""The life of a warm interpreter, and the making of a worker out of it.

It is started with a worker's own command line, stops in the middle of Python's start-up, and is told by its agent what
may be imported ahead. It imports what the script's source says to come first, as far as that is declared. A fork of
this process tries each import: where it went well, the fork is the warm interpreter from then on; where not, this
process goes on without it. So a module that prints, starts threads or crashes is left to the workers, and what came
before it is not lost.

Then it waits for orders. A worker is forked twice, so that its parent is the agent and not this process, which may be
replaced at any time. It makes itself as a fresh interpreter would be and returns into Python's start-up.
"""

from __future__ import annotations

import _socket
import atexit
import gc
import os
import posix
import select
import sys
import time

from . import native, specs
from .declared import LateImport, Table
from .frames import VARIABLE, pack, unpack
from .hazards import Watch, added_to, in_words, printed
from .imports import Group, Stash, of_packages, set_variables
from .package_settings import LOOKS, Settings, makes_temporary_folder
from .prefix import Step, mentions, read_prefix
from .repairs import REPAIRS, REREADS, settle_process_groups
from .stamps import Folders, first_changed, package_folders

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

NEEDS_DESTRUCTORS = frozenset(["h5py", "tables", "netCDF4", "mpi4py"])
"""Libraries that write something when C's `exit` runs."""

SLOW_DESTRUCTORS = frozenset(["torch"])
"""Libraries whose destructors take long, and write nothing."""

NOT_FORKED = 70
"""Exit code of a worker whose maker did not live to say that it had made it."""

_AS_SCRIPT = """
imported, lacks = __import__(module, {}, {}, names), ""
for name in names:
    if name != "*" and not hasattr(imported, name):  # some packages load what is asked for
        lacks = name
        break
"""
"""An import, to be made as the script makes it: what warns of its caller has to find `__main__`, or it is not shown."""

_OF_THE_SCRIPT = "is a part of the script, not an installed package"

_SOL_SOCKET, _SCM_RIGHTS = _socket.SOL_SOCKET, _socket.SCM_RIGHTS


class _Orders:
    """What the agent said first.

    Attributes:
        kind, target: as in the launcher's `Command`.
        per_worker: variables that differ from worker to worker.
        news: a path that workers write to; empty: nobody listens.
        nothing: nothing is to be imported ahead.
        extra: modules that the user wants to be imported ahead.
        table: what may be imported ahead.
    """

    def __init__(self, connection: _Connection) -> None:
        frames = iter(lambda: [os.fsdecode(word) for word in connection.hear()[0]], ["begin"])
        self.kind, self.target, self.news, per_worker, extra = next(frames)
        self.per_worker = frozenset(per_worker.split(",")) - {""}
        self.nothing = extra == "none"
        self.extra = [] if self.nothing else [name for name in extra.split(",") if name]
        self.table = Table(frames, self.extra)


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
    problem = _changed_already() or _runs_code_of(before)
    connection_number, output, python_path = os.environ.pop(VARIABLE).split(",", 2)
    if python_path:
        os.environ["PYTHONPATH"] = python_path[1:]
    else:
        del os.environ["PYTHONPATH"]
    sys.path.remove(here)
    connection = _Connection(int(connection_number))
    orders = _Orders(connection)
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
    except KeyboardInterrupt:
        raise  # Ctrl-C, or a signal that a worker got before its script has begun
    except BaseException as error:  # noqa: BLE001 - or Python would go on, and run the script here
        connection.say("unfit", f"fails: {type(error).__name__}: {error}")
        os._exit(NOT_FORKED)


class _Stopped(BaseException):
    """A module that is about to be loaded is to be loaded by workers only; few handlers in a package take that."""


class _Zygote:
    def __init__(self, connection: _Connection, orders: _Orders, output: int) -> None:
        self._connection = connection
        self._orders = orders
        self._output = output
        os.set_inheritable(output, False)
        os.set_blocking(output, False)
        self._stash = Stash({**REPAIRS, **orders.table.repairs}, REREADS, self._stale)
        self._installed = _installed()
        self._refused: set[str] = set()
        self._groups: list[Group] = []  # of the imports that were made, in order
        self._texts: set[str] = set()  # what the script mentions
        self._missed = 0
        self._stopped = ""
        self._holding: list[int] = []  # the writing ends of what held workers wait at
        self._folders = Folders()  # before anything is imported from there
        self._settings = Settings(LOOKS, time.localtime().tm_year)
        self._last: Callable[[], None] = gc.unfreeze

    def end(self) -> None:
        """Runs last in a worker."""
        settle_process_groups(sys.modules)
        specs.end()
        self._last()

    def _is_local(self, thing: Any) -> bool:
        """Whether a module (or its spec) is the user's own code: neither Python's nor installed beside it."""
        spec: Any = thing if hasattr(thing, "submodule_search_locations") else getattr(thing, "__spec__", None)
        where = getattr(spec, "origin", None) or getattr(thing, "__file__", None)
        # Others are built in, or made by another module.
        return isinstance(where, str) and where.startswith("/") and not where.startswith(self._installed)

    # Warming up.

    def customize(self, problem: str) -> None:
        """A user's own module of that name comes before everything else, as it does without us.

        It runs once, and not in each worker: this process ends where that, or `problem`, makes a difference.
        """
        watch = Watch(self._output, self._orders.per_worker, Table(()))
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
        self._prefix = read_prefix(orders.kind, orders.target, orders.per_worker)
        lists = [list(listed) for listed in added_to()]
        if not sys.flags.safe_path:
            sys.path.insert(0, self._prefix.folder)
        automatic = gc.isenabled()
        gc.disable()
        try:
            if not orders.nothing:
                self._leading()
                self._late()
                for name in orders.extra:
                    if name not in self._refused:
                        self._step(Step(name))
        finally:
            if automatic:
                gc.enable()
        self._prefix.trees.clear()  # before all forks get a share of them
        self._stash.hide(self._groups, lists)
        # The namespace of the script is there already. It stays with what Python takes apart at the end.
        main: Any = sys.modules["__main__"]
        native.freeze_all_but(main, main.__dict__)
        self._connection.say("ready", str(self._stash.modules))

    def _leading(self) -> None:
        """What the script imports before anything else happens in it."""
        environment: dict[str, str] = {}  # what the script has set before imports that were not made
        filters: list[Any] = []
        for step in self._prefix.steps:
            step.environment, step.filters = {**environment, **step.environment}, [*filters, *step.filters]
            # What follows a missing module in a `try` statement is not imported either.
            if (not step.tried or step.tried != self._missed) and not self._step(step):
                return
            environment, filters = step.environment, step.filters
        where, what = self._prefix.ended
        if where:
            self._connection.say("ended", where, what)

    def _late(self) -> None:
        """What the imported packages import by themselves, later, in most scripts."""
        late = [one for one in self._orders.table.late if any(one.package in group.modules for group in self._groups)]
        if not late:
            return
        identifiers, self._texts = mentions(self._orders.kind, self._orders.target, self._prefix.trees)
        for one in late:
            if one.wanted_by & identifiers:
                self._step(Step(one.module), one)

    def _step(self, step: Step, late: LateImport | None = None) -> bool:
        """Makes one import; False where the workers have to make it. `late`: where it is none of the script's own."""
        if _is_done(step):
            return True
        if _is_missing(step.name.partition(".")[0]):
            if not step.tried:
                return self._refuse(step, "it is not installed")
            self._missed = step.tried
            return True
        if problem := self._orders.table.problem(step.name):
            return self._refuse(step, problem)
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
                os.kill(pid, native.SIGKILL)
            _, status = os.waitpid(pid, 0)
            problem = in_words(output) or word.decode(errors="replace")
            if not word:
                problem = f"ends the process (status {status})"
            return self._refuse(step, problem)
        os.close(verdict)
        if problem := self._import(step, late):
            os.write(told, problem.encode(errors="replace")[:4000])
            os._exit(0)
        parent = os.getppid()
        os.write(told, b"well")
        os.close(told)
        while os.getppid() == parent:
            os.sched_yield()  # a moment: it has nothing left to do but to end
        native.die_with_parent()
        self._connection.say("imported", step.name)
        return True

    def _refuse(self, step: Step, problem: str) -> bool:
        self._refused.add(step.name)
        self._connection.say("refused", step.name, problem, step.where)
        return False

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

    def _import(self, step: Step, late: LateImport | None) -> str:
        """Why it was not imported, or should not have been; empty where all is well."""
        set_variables(step.environment)
        for function, values, keywords in step.filters:
            getattr(__import__("warnings"), function)(*values, **keywords)
        table = self._orders.table
        watch = Watch(self._output, self._orders.per_worker, table)
        settings = self._settings.now()
        problem, lacks = self._make(step, watch)
        if lacks and step.tried:  # the script continues after its `try` statement, and so does this
            self._missed = step.tried
        elif problem:
            return problem
        if problem := watch.found():
            return problem
        modules, folders, added = watch.modules, watch.folders, watch.added or []
        for found, module in modules.items():
            if self._is_local(module):
                return f"imports {found}, which {_OF_THE_SCRIPT}"
            if problem := self._has_file(module) and table.problem(found):
                return problem if found == step.name else f"imports {found}: {problem}"
        self._settings.note(modules, settings)
        reads = watch.reads
        if late is not None:
            # The script may change what is read before that import, and nobody would see it do so.
            reads = {**{name: os.environ.get(name) for name in late.reads}, **reads}
            if mentioned := sorted(reads.keys() & self._texts):
                return f"reads {mentioned[0]}, which the script mentions"
            # It may import others of these modules by itself, which is no reason to show this one.
            top = step.name.partition(".")[0]
            others = {found: modules.pop(found) for found in list(modules) if found.partition(".")[0] != top}
            theirs, added = of_packages(added, {found.partition(".")[0] for found in others})
            self._groups.append(Group(f"what {step.name} imports", others, {}, {}, theirs, folders))
            folders = {}
        self._groups.append(Group(step.name, modules, watch.written, reads, added, folders))
        step.environment, step.filters = {}, []  # they are set
        return ""

    def _make(self, step: Step, watch: Watch) -> tuple[str, bool]:
        """Why that import fails, and whether only because what it asks for last is not there; "" where it does not."""
        scope: dict[str, Any] = {"__name__": "__main__", "module": step.name, "names": list(step.names)}
        problem, lacks = "", False
        specs.add(self._stop_before)  # or what the user's own code does would be done here, and again in the worker
        if self._orders.table.is_extra(step.name):  # of others it is known
            specs.add(watch.look)
        try:
            with watch:
                exec(_AS_SCRIPT, scope)
            if scope["lacks"]:
                problem, lacks = f"has no name {scope['lacks']}", True
        except ImportError as error:
            problem = f"cannot be imported ({error})"
            around = step.name.rpartition(".")[0]
            lacks = isinstance(error, ModuleNotFoundError) and error.name == step.name and around in sys.modules
        except BaseException as error:  # noqa: BLE001 - told, and the script meets it in its own time
            problem = f"raises {type(error).__name__} ({error})"
        specs.end()
        if self._stopped:  # a package may have taken the exception, and have gone on
            return self._stopped, False
        return problem, lacks

    def _stop_before(self, name: str, spec: Any) -> Any:
        if problem := _OF_THE_SCRIPT if self._is_local(spec) else makes_temporary_folder(name):
            self._stopped = f"imports {name}, which {problem}"
            raise _Stopped
        return spec

    @staticmethod
    def _has_file(module: Any) -> bool:
        """Whether Python has found it by itself; other modules are made by those that are imported."""
        spec = getattr(module, "__spec__", None)
        return getattr(spec, "origin", None) is not None or bool(getattr(spec, "submodule_search_locations", None))

    # Forking.

    def serve(self) -> None:
        """Forks workers as it is told. Returns in a worker only."""
        while True:
            words, descriptors = self._connection.hear()
            if words[0] == b"go":
                self._let_go()
            elif words[0] == b"fork" and self._fork(words[1:], descriptors):
                return

    def _let_go(self) -> None:
        """Held workers begin."""
        for descriptor in self._holding:
            os.close(descriptor)
        self._holding = []

    def _fork(self, words: Sequence[bytes], descriptors: Sequence[int]) -> bool:
        """Forks one worker for each two descriptors; True in a worker.

        `words`: the agent's pid; the module that workers meet through, how many milliseconds they are held at most, and
        how many they are. A frame for each follows: how many milliseconds it begins later, and its environment.
        """
        agent, meets, held = int(words[0]), os.fsdecode(words[1]), int(words[2])
        workers = [self._connection.hear()[0] for _ in range(int(words[3]))]
        if changed := self._outdated():
            for descriptor in descriptors:
                os.close(descriptor)
            self._connection.say("outdated", changed)
            return False
        waits = bool(meets) and self._stash.has(meets)
        gate, made = os.pipe(), os.pipe()  # workers wait at the first until their maker has told of them
        hold: tuple[int, int] | None = None
        if waits and held:
            hold = os.pipe()
            self._holding.append(hold[1])
        maker = os.fork()
        if maker == 0:
            for number, (later, *environment) in enumerate(workers):
                try:
                    pid = os.fork()
                except OSError as error:
                    os.write(made[1], (error.strerror or str(error)).encode())
                    os._exit(1)
                if pid == 0:
                    os.setsid()  # before the agent can hear of this worker, and want to stop its session
                    for end in (gate[1], *made, *self._holding):
                        os.close(end)
                    self._become(agent, gate[0], descriptors[2 * number :][:2], descriptors, environment)
                    if hold:
                        _wait_until_let_go(hold[0], held)
                    elif waits:
                        time.sleep(int(later) / 1000)
                    return True
                os.write(made[1], b"%d " % pid)
            os._exit(0)
        for descriptor in (made[1], *descriptors, *(hold or ())[:1]):
            os.close(descriptor)
        with open(made[0], "rb") as pids:
            told = pids.read()
        # From here on the workers are the agent's children.
        if os.waitpid(maker, 0)[1] == 0:
            self._connection.say("forked", *told.decode().split())
            os.write(gate[1], b"!" * len(workers))
        else:
            self._connection.say("failed", told.decode(errors="replace").lstrip("0123456789 ") or "its fork was killed")
        for descriptor in gate:
            os.close(descriptor)
        return False

    def _outdated(self) -> str:
        """What has changed since it was read, in words; empty where nothing has."""
        if file := first_changed(self._prefix.files):
            return f"{file} has changed"
        if self._folders.changed():
            return "packages were installed or removed"
        return self._settings.changed(time.localtime().tm_year)

    def _become(
        self, agent: int, gate: int, streams: Sequence[int], descriptors: Sequence[int], environment: list[bytes]
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
        stash.begin()
        slow = any(map(stash.has, SLOW_DESTRUCTORS)) and not any(map(stash.has, NEEDS_DESTRUCTORS))
        if slow and not native.is_instrumented():
            native.end_without_destructors()
            self._last = stash.keep
        # Else it is unfrozen: what was imported ahead is taken apart with the script's own.

    def _stale(self, name: str, variables: list[str]) -> None:
        """Tells the agent that the script has changed variables between its start and an import that was made ahead."""
        try:
            descriptor = os.open(self._orders.news, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, pack(os.fsencode(word)[:1000] for word in ("stale", name, ", ".join(variables))))
            finally:
                os.close(descriptor)
        except OSError:
            return  # nobody listens any more


def _wait_until_let_go(descriptor: int, milliseconds: int) -> None:
    """Until the other end is closed, for so long at most."""
    end = select.poll()
    end.register(descriptor, select.POLLIN)
    end.poll(milliseconds)
    os.close(descriptor)


def _is_missing(name: str) -> bool:
    """Whether no finder knows a top-level module of that name."""
    return name not in sys.modules and not any(finder.find_spec(name, None) for finder in sys.meta_path)


def _is_done(step: Step) -> bool:
    """Whether nothing is left of an import that could be made ahead."""
    module: Any = sys.modules.get(step.name)
    if module is None or step.environment or step.filters:
        return False
    names: Any = getattr(module, "__dict__", {})
    return all(name in names for name in step.names)


def _changed_already() -> str:
    """What code that Python runs in its start-up (lines in .pth files) has made of the environment, in words."""
    with open("/proc/self/environ", "rb") as file:
        given = {entry.partition(b"=")[0]: entry.partition(b"=")[2] for entry in file.read().split(b"\0") if entry}
    now = dict(os.environb)
    # This one Python itself sets, in the agent as well.
    names = sorted(name for name in {*given, *now} - {b"LC_CTYPE"} if given.get(name) != now.get(name))
    return f"changes the environment ({', '.join(map(os.fsdecode, names))})" if names else ""


_KNOWN_TO_DO_NOTHING = ("_distutils_hack", "_virtualenv", "__editable__", "_numba_cuda_redirector")
"""Modules that lines in .pth files import, by how their names begin: they add finders and read nothing."""


def _runs_code_of(modules: set[str]) -> str:
    """Which installed module Python's start-up has imported (by a line in a .pth file), in words; nobody watched it."""
    folders = tuple(f"{path}/" for path in package_folders())
    for name in sorted(modules):
        where = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(where, str) and where.startswith(folders) and not name.startswith(_KNOWN_TO_DO_NOTHING):
            return f"imports {name}, which each worker must run itself"
    return ""


def _set_environment(entries: Sequence[bytes]) -> None:
    """Makes the environment these entries (NAME=value), in this order, for Python and for native code."""
    os.environ.clear()
    posix.environ.clear()
    for entry in entries:
        name, _, value = entry.partition(b"=")
        os.environ[os.fsdecode(name)] = os.fsdecode(value)
        posix.environ[name] = value


def _installed() -> tuple[str, ...]:
    """Where Python's own modules are, and those that are installed beside it; and this package, wherever it is."""
    here = os.path.realpath(__file__)
    own = "elastic_run/elastic_agent/warm/bootstrap.py"
    ours = [f"{path}/elastic_run" for path in sys.path if os.path.realpath(f"{path}/{own}") == here]
    return (*(f"{path}/" for path in (*package_folders(), *ours)), f"{os.path.dirname(os.__file__)}/")
