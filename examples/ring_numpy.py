"""A ring all-reduce of one's own, with numpy and sockets, that lives through changes of the nodes; no framework.

    elastic-run --nnodes=1:4 --nproc-per-node=2 examples/ring_numpy.py --steps 2000

It fits a line through noisy data. Kill a worker or a node, stop one, start another: the others keep their process and
what they have learnt, connect anew, and repeat the step that was under way. `elastic_run.rounds()` gives the places
and breaks the ring where a peer is lost; what the ring is made of is all here.
"""

import argparse
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import elastic_run

Numbers = NDArray[np.float64]

FEATURES, RECORDS, BATCH = 8, 4096, 64


class Superseded(OSError):
    """The round is over before its ring stands."""


@dataclass
class Ring:
    """The two neighbours of one rank."""

    rank: int
    size: int
    left: socket.socket
    right: socket.socket

    def sum(self, mine: Numbers) -> Numbers:
        """The sum of all ranks' vectors, the same to the bit on each: every part is added up in one order."""
        parts = np.array_split(mine.copy(), self.size)
        for turn in range(self.size - 1):  # each part goes around once and grows
            sent, got = (self.rank - turn) % self.size, (self.rank - turn - 1) % self.size
            parts[got] = parts[got] + self._exchange(parts[sent], len(parts[got]))
        for turn in range(self.size - 1):  # and once more, as it is
            sent, got = (self.rank + 1 - turn) % self.size, (self.rank - turn) % self.size
            parts[got] = self._exchange(parts[sent], len(parts[got]))
        return np.concatenate(parts)

    def _exchange(self, part: Numbers, length: int) -> Numbers:
        if self.size == 1:
            return part
        self.right.sendall(part.tobytes())  # small enough for the kernel to take it while the neighbour sends too
        return np.frombuffer(_exactly(self.left, 8 * length), dtype=np.float64)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise ConnectionError("a neighbour has gone")
        found += part
    return found


def _patiently(rounds: elastic_run.Rounds, attempt: Callable[[], socket.socket]) -> socket.socket:
    """What `attempt` gives, which is made again and again for as long as the round is the current one."""
    while True:
        if rounds.over:
            raise Superseded("the round is over")
        with contextlib.suppress(TimeoutError, ConnectionRefusedError):
            return attempt()
        time.sleep(0.002)


def _dial(rounds: elastic_run.Rounds, host: str, port: int) -> socket.socket:
    found = _patiently(rounds, lambda: socket.create_connection((host, port), timeout=0.2))
    found.settimeout(None)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rounds.register_sockets([found])
    return found


def _answer(rounds: elastic_run.Rounds, listening: socket.socket) -> socket.socket:
    listening.settimeout(0.2)
    found = _patiently(rounds, lambda: listening.accept()[0])
    found.settimeout(None)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rounds.register_sockets([found])
    return found


def _say(connection: socket.socket, value: object) -> None:
    body = json.dumps(value).encode()
    connection.sendall(struct.pack(">I", len(body)) + body)


def _hear(connection: socket.socket) -> list[list[object]]:
    (length,) = struct.unpack(">I", _exactly(connection, 4))
    return json.loads(_exactly(connection, length))


@contextlib.contextmanager
def connect(rounds: elastic_run.Rounds, context: elastic_run.Context) -> Iterator[Ring]:
    """The ring of one round. All ranks meet at rank 0, which tells each where its neighbours listen."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with contextlib.ExitStack() as closing:
        mine = closing.enter_context(socket.create_server(("", 0)))
        if context.rank == 0:
            meeting = closing.enter_context(socket.create_server(("", port), backlog=context.world_size))
            guests = [closing.enter_context(_answer(rounds, meeting)) for _ in range(context.world_size - 1)]
            told = [_hear(guest)[0] for guest in guests]
            table = sorted([*told, [0, host, mine.getsockname()[1]]])
            for guest in guests:
                _say(guest, table)
        else:
            master = closing.enter_context(_dial(rounds, host, port))
            _say(master, [[context.rank, master.getsockname()[0], mine.getsockname()[1]]])
            table = _hear(master)
        _, next_host, next_port = table[(context.rank + 1) % context.world_size]
        right = closing.enter_context(_dial(rounds, str(next_host), int(str(next_port))))
        left = closing.enter_context(_answer(rounds, mine))
        rounds.formed()
        yield Ring(context.rank, context.world_size, left, right)


class Fit:
    """What is learnt: the weights after so many steps."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)
        self.inputs = random.normal(size=(RECORDS, FEATURES))
        self.wanted = self.inputs @ np.arange(1.0, FEATURES + 1) + random.normal(scale=0.1, size=RECORDS)
        self.step = 0
        self.weights = np.zeros(FEATURES)

    def agree(self, ring: Ring) -> None:
        """Everybody continues from the highest step that somebody has finished."""
        steps = np.zeros(ring.size)
        steps[ring.rank] = self.step
        steps = ring.sum(steps)
        source = int(steps.argmax())
        mine = self.weights if ring.rank == source else np.zeros(FEATURES)
        self.weights, self.step = ring.sum(mine), int(steps[source])

    def train(self, ring: Ring, steps: int, pause: float, leave: Callable[[], bool]) -> None:
        """Until the end, or until somebody wants to leave the ring: then all do, after the same step."""
        while self.step < steps:
            batch = np.arange(self.step * BATCH, (self.step + 1) * BATCH) % RECORDS
            share = batch[ring.rank :: ring.size]
            error = self.inputs[share] @ self.weights - self.wanted[share]
            told = ring.sum(np.append(self.inputs[share].T @ error / BATCH, float(leave())))
            self.weights, self.step = self.weights - 0.05 * told[:-1], self.step + 1
            time.sleep(pause)
            if told[-1]:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="pretend that a step takes this long")
    options = parser.parse_args()
    fit, rounds = Fit(), elastic_run.rounds()
    for context in rounds:
        try:
            with connect(rounds, context) as ring:
                fit.agree(ring)
                print(
                    f"ring {context.round}: rank {context.rank} of {context.world_size} goes on after step {fit.step}",
                    flush=True,
                )
                fit.train(ring, options.steps, options.step_seconds, lambda: rounds.planned)
        except OSError as error:
            print(f"the ring is broken: {error}", flush=True)
        if fit.step == options.steps:
            break
    worst = np.abs(fit.weights - np.arange(1.0, FEATURES + 1)).max()
    print(f"ends after step {fit.step}: the weights are right to {worst:.3f}; {fit.weights.sum().hex()}", flush=True)


if __name__ == "__main__":
    main()
