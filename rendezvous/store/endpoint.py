"""Where the store is: `host:port` as a user types it, read and normalized; and which of these hosts is this machine.

The first half is pure. The second asks the machine: its interfaces, its resolver and its routing table.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence

from ..base.frozen import dataclass

DEFAULT_PORT = 2379
"""The port that etcd's clients use."""

_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.(?!-)[a-z0-9_-]{1,63})*\.?")


class MalformedEndpoint(ValueError):
    """The text names no store; the message says which part and what was expected."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of the store.

    Attributes:
        host: a lower-case name, or an IP address without brackets.
        port: 1 to 65535.
        tls: it was written `https://`: a store of the user's own, which is used and never started.
        plain: it was written `http://`: the same, without encryption.
        secret: the fingerprint of the secret that protects a store of ours; empty where none does.
    """

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    plain: bool = False
    secret: str = ""

    def __str__(self) -> str:
        return authority(self.host, self.port)

    @property
    def loopback(self) -> bool:
        """By its text it is this machine, and nothing that is sent there leaves it."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return is_loopback(self.host)
        except ValueError:  # a name
            return False

    @property
    def url(self) -> str:
        """`http://host:port`, or with `https`."""
        return f"{'https' if self.tls or self.secret else 'http'}://{self}"

    @property
    def typed(self) -> str:
        """As a user types it, so that another command means the same store by it."""
        return self.url if self.tls or self.plain else str(self)

    @property
    def own(self) -> bool:
        """A store that the user runs: it is used and never started."""
        return self.tls or self.plain


def authority(host: str, port: int) -> str:
    """`host:port` as it stands in a URL: an IPv6 address gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_endpoints(text: str, default_port: int = DEFAULT_PORT) -> tuple[Endpoint, ...]:
    """Reads `h1:2379,h2`, `[::1]:2379`, `::1`, `http://h1:2379`, in the order given.

    Raises MalformedEndpoint: nothing there, an empty item, a host or port that cannot be, the same one twice.
    """
    if not text.strip():
        raise MalformedEndpoint("the endpoint is empty: give host:port, or several with commas between them")
    endpoints: list[Endpoint] = []
    shown = ",".join(map(without_user, text.split(",")))
    for item in text.split(","):
        endpoint = _parse(item.strip(), shown, default_port)
        if any((known.host, known.port) == (endpoint.host, endpoint.port) for known in endpoints):
            raise MalformedEndpoint(f"endpoint {shown!r} names {endpoint} twice")
        endpoints.append(endpoint)
    return tuple(endpoints)


def without_user(item: str) -> str:
    """An endpoint as it may be shown: what stands before an `@` may be a password."""
    before, at, host = item.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme}{separator}***@{host}" if at and separator else f"***@{host}" if at else item


def _parse(item: str, text: str, default_port: int) -> Endpoint:
    if not item:
        raise MalformedEndpoint(f"endpoint {text!r} has an empty item: give host:port with commas between them")
    given, item = item, without_user(item)
    scheme, separator, rest = item.partition("://")
    if not separator:
        scheme, rest = "http", item
    elif scheme.lower() not in ("http", "https"):
        raise MalformedEndpoint(f"endpoint {item!r}: the scheme {scheme!r} is neither http nor https")
    rest = rest.removesuffix("/")
    if item != given:
        raise MalformedEndpoint(
            f"endpoint {item!r}: expected only host:port, without a user; --etcd-user names one, and its password is "
            "never a part of a command line"
        )
    if "/" in rest or "?" in rest:
        raise MalformedEndpoint(f"endpoint {item!r}: expected only host:port, without a path")
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise MalformedEndpoint(f"endpoint {item!r}: expected [address]:port")
        port = tail[1:] if tail else str(default_port)
        host = _ipv6(host, item)
    elif rest.count(":") > 1:  # a bare address: with a port it needs brackets, as in a URL
        host, port = _ipv6(rest, item), str(default_port)
    else:
        host, colon, port = rest.partition(":")
        host, port = _name(host, item), port if colon else str(default_port)
    tls = scheme.lower() == "https"
    return Endpoint(host, _port(port, item), tls=tls, plain=bool(separator) and not tls)


def _ipv6(host: str, item: str) -> str:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        raise MalformedEndpoint(
            f"endpoint {item!r}: {host!r} is not an IPv6 address; with a port, write [address]:port"
        ) from None
    return _reachable(str(address), address, item)


def _name(host: str, item: str) -> str:
    if not host:
        raise MalformedEndpoint(f"endpoint {item!r} has no host: expected host:port")
    host = host.lower()
    if re.fullmatch(r"[0-9.]+", host):
        try:
            address = ipaddress.IPv4Address(host)
        except ValueError:
            raise MalformedEndpoint(f"endpoint {item!r}: {host!r} is not an IPv4 address") from None
        return _reachable(host, address, item)
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise MalformedEndpoint(f"endpoint {item!r}: {host!r} is not a host name")
    return host


def _reachable(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address, item: str) -> str:
    if address.is_unspecified or address.is_multicast:
        raise MalformedEndpoint(
            f"endpoint {item!r}: other machines cannot connect to {host}; name this machine or its address"
        )
    return host


def _port(port: str, item: str) -> int:
    if not (port.isascii() and port.isdigit()):
        raise MalformedEndpoint(f"endpoint {item!r}: the port {port!r} is not a number")
    if not 1 <= int(port) <= 65535:
        raise MalformedEndpoint(f"endpoint {item!r}: the port {port} is not between 1 and 65535")
    return int(port)


# What follows asks the machine.


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a server for a host of ours listens, and what it tells others to connect to (both without a port)."""

    listen: str
    advertise: str


def resolve(host: str) -> tuple[str, ...]:
    """The host's addresses, best first, without scope; none where it does not resolve. May ask a name server."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def interface_addresses() -> frozenset[str]:
    """Every address of this machine's interfaces, without scope."""
    import psutil  # here, because a job of one node asks for none of them, and waits for every import

    return frozenset(
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    )


def loopback_address() -> str:
    """By which the processes of this machine reach each other: a container may have no IPv4 at all. Sends nothing."""
    own = (find_source_address(address, DEFAULT_PORT) for address in ("127.0.0.1", "::1"))
    return next(filter(None, own), "127.0.0.1")


def is_loopback(address: str) -> bool:
    """The IP address never leaves the machine."""
    return ipaddress.ip_address(address).is_loopback


def is_local(host: str) -> bool:
    """The host is this machine. A name that does not resolve is not."""
    addresses = resolve(host)
    return any(map(is_loopback, addresses)) or not interface_addresses().isdisjoint(addresses)


def routable_address(peers: Iterable[Endpoint | str]) -> str:
    """The address of the interface that routes to the first peer elsewhere.

    Without such a peer, any address that is not loopback; without that, a loopback address. Sends nothing.
    """
    for peer in peers:
        host, port = (peer.host, peer.port) if isinstance(peer, Endpoint) else (peer, DEFAULT_PORT)
        interfaces = interface_addresses()
        for target in resolve(host):
            if is_loopback(target) or target in interfaces:
                continue
            source = find_source_address(target, port)
            if source is not None and not is_loopback(source):
                return source
    # Where the default route leads, before any bridge of containers or virtual machines. Nothing is sent.
    for elsewhere in ("198.51.100.1", "2001:db8::1"):
        source = find_source_address(elsewhere, DEFAULT_PORT)
        if source is not None and not is_loopback(source):
            return source
    candidates = [
        ipaddress.ip_address(address)
        for address in interface_addresses()
        if not is_loopback(address) and not ipaddress.ip_address(address).is_link_local
    ]
    # IPv4 first: where a machine has both, IPv6 is the one that is more often not routed.
    best = min(candidates, key=lambda address: (address.version, int(address)), default=None)
    return loopback_address() if best is None else str(best)


def find_source_address(target: str, port: int) -> str | None:
    """The address of this machine from which packets to that one go; None where there is no route."""
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((target, port))  # of a datagram socket: picks the route and sends nothing
            return str(sock.getsockname()[0]).partition("%")[0]
    except OSError:
        return None


def binding(host: str, peers: Sequence[Endpoint | str], *, alone: bool = False) -> Binding:
    """Where to listen for a host that is this machine.

    A host binds its address, and a name that resolves only to loopback binds loopback. The machine's own name may do
    so, too (Debian maps it to 127.0.1.1), and means something else to other machines: where they are expected, bind
    every interface, and advertise the one that routes to them.

    Args:
        host: an address or a name.
        peers: other hosts of the job.
        alone: no other machine is expected.
    """
    addresses = resolve(host)
    outward = [address for address in addresses if not is_loopback(address)]
    if outward:  # asked only where it matters: that takes longer than all the rest
        interfaces = interface_addresses()
        outward = [address for address in outward if address in interfaces]
    if outward:
        return Binding(outward[0], outward[0])
    loopback = next((address for address in addresses if is_loopback(address)), None) or loopback_address()
    if alone or not _names_this_machine(host):
        return Binding(loopback, loopback)
    return Binding("::" if ":" in loopback else "0.0.0.0", routable_address(peers))


def loopback_alias(host: str) -> str:
    """Where a name leads that means loopback here, and says nothing of that to a reader; empty where it is no such.

    Other machines may know the name as an address of this one, and find nobody there.
    """
    found = resolve(host)
    if host in found or host == "localhost" or host.endswith(".localhost") or _names_this_machine(host):
        return ""
    return found[0] if found and all(map(is_loopback, found)) else ""


def _names_this_machine(host: str) -> bool:
    own = socket.gethostname().lower().partition(".")[0]
    return own != "localhost" and host.partition(".")[0] == own
