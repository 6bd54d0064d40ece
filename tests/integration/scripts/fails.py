"""Rank 1 ends in the way that `fails.py HOW` says; the other ranks wait for ever."""

import os
import signal
import sys


def prepare(table: dict[str, int]) -> int:
    return table["learning_rate"]


if os.environ["RANK"] != "1":
    signal.pause()
match sys.argv[1]:
    case "exception":
        prepare({"epochs": 3})
    case "deep exception":
        # Functions of their own: the interpreter itself shortens the traceback of one that calls itself.
        code = [f"def f{level}():\n    return f{level + 1}()" for level in range(60)]
        exec("\n".join(code) + "\ndef f60():\n    return prepare({})", globals())
        globals()["f0"]()
    case "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    case "SIGSEGV":
        os.kill(os.getpid(), signal.SIGSEGV)
    case "usage":
        print("usage: fails.py HOW", file=sys.stderr, flush=True)
        os._exit(2)
    case "stdout":
        print("no such data set", flush=True)
        os._exit(1)
    case "memory":
        hoard: list[bytes] = []
        while True:
            hoard.append(b"x" * (8 << 20))
