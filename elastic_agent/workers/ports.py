"""Ports for the workers' MASTER_PORT, and for the workers themselves: chosen and held before a round needs them.

Each node offers a few; rounds take them in turn, so that a leftover of one round never meets the next. They lie
below the range from which the kernel gives ports to outgoing connections, and are held (bound, not listening) until
the workers start, so two agents on one machine never offer the same.
"""

import contextlib
import random
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from ...adapters.plain import Plain
from ...rendezvous.header import Header
from ...rendezvous.peers import NodePeers
from ...rendezvous.ranks import PORT_SETS, Assignment

OFFERED = 8
"""Ports that one node offers at a time. A worker that is given time to end still has its own: a port comes again only
after so many rounds."""

_LOWEST = 20_000


class Ports:
    """The ports that this node offers. `offered` never changes but by `renew`.

    Args:
        count: how many; 0 where the workers need none.
        least: with fewer it cannot be used.
    """

    def __init__(self, count: int = OFFERED, least: int = 1) -> None:
        self._count = count
        self._least = min(count, least)
        self._held: dict[int, socket.socket] = {}
        self.offered: tuple[int, ...] = ()
        self.renew()

    def renew(self) -> None:
        """Offers other ports. Raises OSError where too few are free."""
        self.close()
        if not self._count:
            return
        highest = _first_ephemeral_port() - 1
        low = _LOWEST if highest - _LOWEST > 1000 else 10_000
        for port in random.sample(range(low, max(highest, low + 10_000)), 512 + 2 * self._count):
            if held := _bind(port):
                self._held[port] = held
                if len(self._held) == self._count:
                    break
        self.offered = tuple(self._held)
        if len(self.offered) < self._least:
            found = f"only {len(self.offered)} ports" if self.offered else "no port"
            raise OSError(f"{found} between {low} and {highest} of {self._least} that the workers need: free some")

    def release(self, port: int) -> bool:
        """Lets go of `port` for the workers that start now; False where somebody else has it."""
        if held := self._held.pop(port, None):
            held.close()
            return True
        probe = _bind(port, again=True)
        if probe is None:
            return False
        probe.close()
        return True

    def hold(self) -> None:
        """Takes offered ports back that are free again."""
        for port in self.offered:
            if port not in self._held and (held := _bind(port, again=True)):
                self._held[port] = held

    def close(self) -> None:
        """Lets go of all of them."""
        for held in self._held.values():
            held.close()
        self._held.clear()


class RoundPorts:
    """All ports that a node holds for its workers' rounds.

    Args:
        make: as `Ports`. May raise OSError.
        adapter: says what its framework's workers need.
        most: workers that this node may have.
        unfit: is told why this machine cannot hold them.
    """

    def __init__(
        self, make: Callable[[int, int], Ports], adapter: Plain, most: int, unfit: Callable[[str], object]
    ) -> None:
        self._make = make
        self._adapter = adapter
        self._unfit = unfit
        held = most * adapter.worker_ports * PORT_SETS
        self._meeting = self._hold_new(OFFERED if adapter.port else 0, 1)
        self._workers = self._hold_new(held, held)

    def _hold_new(self, count: int, least: int) -> Ports:
        try:
            return self._make(count, least)
        except OSError as error:
            self._unfit(str(error))
            return self._make(0, 0)

    @property
    def offered(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those for the workers' meeting place, and those for the workers themselves."""
        return self._meeting.offered, self._workers.offered

    def release(self, header: Header, assignment: Assignment, peers: Iterable[NodePeers]) -> str:
        """Gives this round's free that are this node's; why not, where somebody else has one: others are offered then.

        Args:
            peers: where the workers of all nodes are; none where their framework does not ask.
        """
        name = self._adapter.port
        if assignment.group_rank == 0 and name and not self._meeting.release(header.master_port):
            return self._renew(self._meeting, header.master_port, f"the workers' {name}")
        for peer in peers:
            if peer.first_rank == assignment.first_rank:
                for port in peer.ports:
                    if not self._workers.release(port):
                        return self._renew(self._workers, port, "its workers")
        return ""

    def _renew(self, ports: Ports, taken: int, whose: str) -> str:
        try:
            ports.renew()
        except OSError as error:
            self._unfit(str(error))
        return f"port {taken} for {whose} is still taken, by an earlier round's connections or another program"

    def hold(self) -> None:
        """Takes those back that are free again."""
        self._meeting.hold()
        self._workers.hold()

    def close(self) -> None:
        """Lets go of all of them."""
        self._meeting.close()
        self._workers.close()


def _bind(port: int, *, again: bool = False) -> socket.socket | None:
    """A socket bound to `port`, or None. `again`: connections of an earlier round may linger there (TIME_WAIT)."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        if again:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", port))
    except OSError:
        held.close()
        return None
    return held


def _first_ephemeral_port() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return 32_768
