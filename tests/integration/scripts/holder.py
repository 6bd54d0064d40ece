"""Holds a process at its end, as a driver that hangs in the kernel does: `python holder.py exit|thread|zombie PID`.

exit: its first thread stops on its way out, so that SIGKILL does not end it. thread: another of its threads does, and
the first is a zombie meanwhile. zombie: it ends, and its parent cannot collect it. Says "holds" when it is done, and
holds until its standard input ends.
"""

import ctypes
import sys
from pathlib import Path

PTRACE_SEIZE = 0x4206
PTRACE_O_TRACEEXIT = 1 << 6


def main(how: str, pid: int) -> None:
    """Attaches, and never lets the process go on."""
    threads = sorted(int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    held = threads[-1] if how == "thread" else pid
    if libc.ptrace(PTRACE_SEIZE, held, None, 0 if how == "zombie" else PTRACE_O_TRACEEXIT):
        raise OSError(ctypes.get_errno(), f"cannot trace {held}")
    print("holds", flush=True)
    sys.stdin.read()


main(sys.argv[1], int(sys.argv[2]))
