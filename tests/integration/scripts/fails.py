"""Rank 1 ends in the way that `fails.py HOW` says; the other ranks wait for ever, or until they give up."""

import datetime
import os
import signal
import socket
import sys


def prepare(table: dict[str, int]) -> int:
    return table["learning_rate"]


def meet(seconds: float) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
    if os.environ["RANK"] != "1":
        dist.barrier()


if sys.argv[1] in ("late", "refused"):
    meet(2 if sys.argv[1] == "late" else 60)
if os.environ["RANK"] != "1" or sys.argv[1] == "late":
    signal.pause()
match sys.argv[1]:
    case "exception":
        prepare({"epochs": 3})
    case "deep exception":
        # Functions of their own: the interpreter itself shortens the traceback of one that calls itself.
        code = [f"def f{level}():\n    return f{level + 1}()" for level in range(60)]
        exec("\n".join(code) + "\ndef f60():\n    return prepare({})", globals())
        globals()["f0"]()
    case "refused":
        socket.create_connection(("127.0.0.1", 1))  # its database
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
