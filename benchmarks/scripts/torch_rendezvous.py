"""torch's c10d rendezvous: of nodes that begin at once, or of nodes that wait for a last one.

Called with a free port, the number of nodes, how many may be about to join at a time (0: all begin at once), the
seconds that each part may take, and the file for the answer: `seconds`, from the signal to begin or from the last one's
entry into the state until all have returned (null: not in time), and `processor`, the seconds that this process, which
has the TCPStore, used; or, in words, why the last one could not come. Each node is a process that was forked from this
one after it had imported torch.
"""

# torch's types say little here:
# pyright: basic, reportPrivateImportUsage=false

import json
import os
import select
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

HOST = "127.0.0.1"
SETTLE_SECONDS = 3.0
"""Until those that wait do nothing but wait."""

CONNECT = timedelta(seconds=60)


class Backend(C10dRendezvousBackend):
    """The real one, which tells when this node's first write was taken: that it has joined."""

    def __init__(self, store, run, tell) -> None:
        super().__init__(store, run)
        self._tell = tell

    def set_state(self, state, token=None):
        result = super().set_state(state, token)
        if self._tell is not None and result is not None and result[2]:
            self._tell()
            self._tell = None
        return result


def node(port: int, nodes: int, gate: int, out: int) -> None:
    """One node: joins when it gets a byte from its gate, or the gate is opened for all."""

    def tell(what: str) -> None:
        os.write(out, f"{what} {time.monotonic()}\n".encode())

    store = TCPStore(HOST, port, is_master=False, timeout=CONNECT)
    backend = Backend(store, "scale", lambda: tell("joined"))
    parameters = RendezvousParameters("c10d", f"{HOST}:{port}", "scale", nodes, nodes, local_addr=HOST)
    handler = create_handler(store, backend, parameters)
    tell("ready")
    os.read(gate, 1)
    handler.next_rendezvous()
    tell("holds")
    signal.pause()  # until it is killed


class Lines:
    """What the nodes tell."""

    def __init__(self, source: int) -> None:
        self._source = source
        self.deadline = 0.0  # on the monotonic clock
        self._rest = b""
        self._told: dict[str, list[float]] = {}

    def until(self, what: str, count: int) -> list[float]:
        """Waits until `count` nodes have told it; their instants. Raises TimeoutError."""
        while len(self._told.get(what, ())) < count:
            if not select.select([self._source], [], [], max(0.0, self.deadline - time.monotonic()))[0]:
                raise TimeoutError(f"of {count} nodes, {len(self._told.get(what, ()))} were {what!r}")
            *lines, self._rest = (self._rest + os.read(self._source, 65536)).split(b"\n")
            for line in lines:
                name, _, instant = line.decode().partition(" ")
                self._told.setdefault(name, []).append(float(instant))
        return self._told.get(what, [])


def measured(source: int, nodes: int, pace: int, bound: float, gates: tuple[int, int]) -> dict[str, float | None]:
    """Opens the gates, that of the last one last. Raises TimeoutError where it could not be opened."""
    lines = Lines(source)
    lines.deadline = time.monotonic() + bound
    lines.until("ready", nodes)
    used = time.process_time()
    lines.deadline = time.monotonic() + bound
    if pace:
        for number in range(nodes - 1):
            lines.until("joined", number - pace + 1)
            os.write(gates[0], b".")
        lines.until("joined", nodes - 1)
        time.sleep(SETTLE_SECONDS)
    begun = time.monotonic()
    lines.deadline = begun + bound
    os.close(gates[0])
    os.close(gates[1])
    try:
        held = lines.until("holds", nodes)
        if pace:
            begun = max(lines.until("joined", nodes))
    except TimeoutError:
        return {"seconds": None, "processor": time.process_time() - used}
    return {"seconds": max(held) - begun, "processor": time.process_time() - used}


def main(port: int, nodes: int, pace: int, bound: float, answer: Path) -> None:
    pipes = [os.pipe(), os.pipe()]
    source, out = os.pipe()
    (others, open_others), (last, open_last) = pipes
    for number in range(nodes):
        if not os.fork():  # before the store has its thread
            os.close(open_others)
            os.close(open_last)
            node(port, nodes, last if number == nodes - 1 else others, out)
    store = TCPStore(HOST, port, is_master=True, wait_for_workers=False, timeout=CONNECT)
    try:
        found = measured(source, nodes, pace, bound, (open_others, open_last))
    except TimeoutError as error:
        found = f"not within {bound:g} s: {error}"
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(answer)
    time.sleep(bound)  # until it is killed
    del store


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
