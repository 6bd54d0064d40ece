"""A process with the listener of an agent, for attacks: `python listener.py asyncio|ours FILES`.

It prints its address, and then answers each line that it reads: `files N` whether it can open so many, `memory` its
resident bytes, `cpu` the seconds that it has run.

As "asyncio" it listens in the way in which agents once did: asyncio's own server, with a long queue, and no bound.
"""

import asyncio
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.failure_detector import AgentListener
from elastic_run.rendezvous.rpc import server
from elastic_run.rendezvous.rpc.bounds import Bounds
from elastic_run.rendezvous.rpc.envelope import Caller
from elastic_run.rendezvous.rpc.server import Method

EVERYTHING = 2**40


@dataclass(frozen=True, slots=True)
class Words:
    text: str


async def echo(_: Caller, words: Words) -> Words:
    """The same."""
    return words


def memory() -> int:
    """Resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def can_open(count: int) -> bool:
    """Whether so many files can be opened now."""
    opened: list[int] = []
    try:
        opened += (os.open(os.devnull, os.O_RDONLY) for _ in range(count))
        return True
    except OSError:
        return False
    finally:
        for each in opened:
            os.close(each)


async def unbounded(listener: AgentListener) -> str:
    """Serves as agents once did; its address."""
    answering = vars(listener)["_server"]

    def connected() -> asyncio.Protocol:
        made = connection(answering, None)
        answering.census.arrives(made)
        return made

    connection = vars(server)["_Connection"]
    listening = failure_detector.listener("127.0.0.1")
    await asyncio.get_running_loop().create_server(connected, sock=listening, backlog=failure_detector.BACKLOG)
    return f"127.0.0.1:{listening.getsockname()[1]}"


async def main(how: str, files: int) -> None:
    """Listens, and answers until its input ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    listener = AgentListener("A1", methods={"echo": Method(Words, echo)}, say=lambda line: print(line, file=sys.stderr))
    if how == "ours":
        await listener.start("127.0.0.1", "127.0.0.1")
        address = listener.address
    else:
        many = Bounds(EVERYTHING, EVERYTHING, EVERYTHING, EVERYTHING, EVERYTHING)
        answering = vars(listener)["_server"]
        answering.bounds, answering.census = many, type(answering.census)(many)
        address = await unbounded(listener)
    print(address, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        match line.split():
            case ["files", count]:
                print(can_open(int(count)), flush=True)
            case ["memory"]:
                print(memory(), flush=True)
            case _:
                print(sum(os.times()[:2]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
