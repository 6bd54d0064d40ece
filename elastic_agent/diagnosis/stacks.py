"""Python stacks of workers, by py-spy, which reads their memory from outside.

`--nonblocking` never stops the worker: it cannot see that it was looked at. What is read while a worker runs may be
torn; a stack of a worker that stands still is whole.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from ...master.diagnosis.evidence import MAX_FRAMES, Frame
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.threads import Threads
from ...rendezvous.base.visible import visible

SECONDS = 15.0
"""For one stack. py-spy reads the symbols of the interpreter first, which takes about 0.1 s, and far more on a machine
with too few processors."""

AT_ONCE = 4
"""Processes of py-spy at a time."""

OPERATIONS, LOGGER = "/torch/distributed/distributed_c10d", "/torch/distributed/c10d_logger"
"""Where torch's operations are, and the decorator around each."""

NAMES = ("src", "dst", "tag", "ranks")
RANKS = re.compile(r"\d+|\[[\d, ]+\]")
"""Arguments of operations that are kept, and what they look like."""

MISSING = "py-spy is not installed (pip install py-spy)"


@dataclass(frozen=True, slots=True)
class Stack:
    """The stacks of one process.

    Attributes:
        frames: of the main thread, the innermost first.
        holds_gil: the main thread has the interpreter's lock.
        gil_holder: where the other thread is that has it; empty where none has.
        trouble: why there are none.
        others: the stacks of the other threads, by the kernel's numbers of these.
    """

    frames: tuple[Frame, ...] = ()
    holds_gil: bool | None = None
    gil_holder: str = ""
    trouble: str = ""
    others: tuple[tuple[int, tuple[Frame, ...]], ...] = ()


def py_spy() -> str | None:
    """The program; None where it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


class Stacks:
    """Takes them for one agent: few at a time, since each is a process that reads an interpreter's symbols.

    Args:
        program: what `py_spy` has found when the agent started: a later search may meet a mount that is dead by then.
    """

    def __init__(self, program: str | None) -> None:
        self._program = program
        self._threads = Threads(AT_ONCE)

    async def take(self, pid: int, seconds: float = SECONDS) -> Stack:
        """The Python stacks of `pid`, within so many seconds."""
        if self._program is None:
            return Stack(trouble=MISSING)
        dump = _Dump(self._program, pid)
        try:
            code, out, err = await self._threads.run(dump.run, seconds)
        except TimeoutError:
            return Stack(trouble=f"py-spy has read no stack of process {pid} within {seconds:.3g} s")
        except OSError as error:
            return Stack(trouble=f"py-spy cannot be run: {error}")
        finally:
            dump.end()
        if code != 0:
            words = err.decode(errors="replace").strip().splitlines()
            return Stack(trouble=f"py-spy: {visible(words[-1][:300] if words else 'failed')}")
        return read(out, pid)


class _Dump:
    """One run of py-spy, on a thread that may be blocked as long as the process is."""

    def __init__(self, program: str, pid: int) -> None:
        # A process that starts a program is blocked, with all its threads, until the program is read. So the agent
        # starts the shell, which is on the machine's own disk, and the shell is blocked where the program's is dead.
        command = [program, "dump", "--pid", str(pid), "--nonblocking", "--json", "--locals"]
        self._command = ["/bin/sh", "-c", 'exec "$@"', "sh", *command]
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self) -> tuple[int, bytes, bytes]:
        """Its exit code and what it has printed. Raises OSError where no process can be started."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
            self._process = process
            if self._ended:
                process.kill()
            out, err = process.communicate()
        return process.returncode, out, err

    def end(self) -> None:
        """Kills it, where it runs or is about to."""
        self._ended = True
        if self._process:
            self._process.kill()


def read(out: bytes, pid: int) -> Stack:
    """What py-spy's JSON says of the threads of `pid`."""
    try:
        threads = cast(list[dict[str, Any]], json.loads(out))  # Any: another program's JSON
        main = next((each for each in threads if each.get("os_thread_id") == pid), None)
        main = main or next((each for each in threads if each.get("thread_name") == "MainThread"), threads[-1])
        holder = next((each for each in threads if each.get("owns_gil") and each is not main), None)
        where = _frames(holder["frames"]) if holder else ()
        name = f"{where[0].function} ({where[0].file}:{where[0].line})" if where else "another thread" if holder else ""
        others = tuple(
            (number, _frames(each["frames"]))
            for each in threads
            if each is not main and isinstance(number := each.get("os_thread_id"), int) and number > 0
        )
        return Stack(_frames(main["frames"]), bool(main.get("owns_gil")), name[:400], others=others)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        return Stack(trouble=f"py-spy's output cannot be read ({error!r})"[:300])


def _frames(found: list[dict[str, Any]]) -> tuple[Frame, ...]:
    """The innermost and the outermost calls."""
    calls = [
        Frame(
            _text(each["filename"])[-400:],
            min(max(0, int(each.get("line") or 0)), 1 << 31),
            _text(each["name"])[:400],
            _arguments(each, outer),
        )
        for each, outer in zip(found, [*found[1:], {}], strict=True)
    ]
    half = MAX_FRAMES // 2
    return tuple(calls if len(calls) <= MAX_FRAMES else [*calls[:half], *calls[-half:]])


def _arguments(call: dict[str, Any], outer: dict[str, Any]) -> str:
    """Between which ranks an operation is. Nothing else of what py-spy tells of variables is kept.

    Of a group that was given, torch's decorator around the operation tells: inside, the default one looks alike.
    """
    if OPERATIONS not in call["filename"]:
        return ""
    told = [f"{each['name']}={text}" for each in call.get("locals") or () if (text := _ranks(each))]
    if LOGGER in outer.get("filename", ""):
        given = " ".join(str(each["repr"]) for each in outer.get("locals") or () if each["name"] in ("args", "kwargs"))
        told += ["group=..."] if "ProcessGroup" in given else []
    given = {each["name"]: str(each.get("repr")) for each in call.get("locals") or ()}
    if call["name"] == "recv" and given.get("src") == given.get("group_src", "None") == "None":
        told.insert(0, "src=None")  # from any rank
    return ", ".join(told)[:400]


def _ranks(variable: dict[str, Any]) -> str:
    text = str(variable.get("repr") or "")
    name = variable["name"]
    return text if name in NAMES and RANKS.fullmatch(text) and (name, text) != ("tag", "0") else ""


def _text(found: object) -> str:
    """Printable by any machine: names come from the worker's memory."""
    return visible(str(found).encode("utf-8", "replace").decode())
