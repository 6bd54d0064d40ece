"""Ports for the workers' MASTER_PORT, and for the workers themselves: chosen and held before a round needs them.

Each node offers a few; rounds take them in turn, so that a leftover of one round never meets the next. They lie
below the range from which the kernel gives ports to outgoing connections, and are held (bound, not listening) until
the workers start, so two agents on one machine never offer the same.
"""

import contextlib
import random
import socket
from pathlib import Path

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
