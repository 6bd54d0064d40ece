"""By which network interface a node's peers reach it: gloo wants its name."""

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

_SIOCGIFADDR = 0x8915
_ANY_PORT = 9


def interface_to(host: str, others: Sequence[str]) -> str:
    """The name of an interface; empty where it is not known.

    Args:
        host: what the peers call this node.
        others: the peers' hosts.
    """
    own = _resolved(host)
    if own and not ipaddress.ip_address(own).is_loopback:
        return _with_address(own)
    for other in others:  # a name that means loopback here may mean something else there
        if (there := _resolved(other)) and not ipaddress.ip_address(there).is_loopback and (here := _route(there)):
            return _with_address(here)
    return _with_address(own) if own else ""


def _resolved(host: str) -> str:
    with contextlib.suppress(OSError, UnicodeError):
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]).partition("%")[0]
    return ""


def _route(address: str) -> str:
    """This machine's address on the way there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, _ANY_PORT))
        return str(probe.getsockname()[0]).partition("%")[0]
    return ""


def _with_address(address: str) -> str:
    wanted = ipaddress.ip_address(address)
    if wanted.version == 6:
        return _with_address_6(wanted)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                asked = struct.pack("256s", name.encode()[:15])
                found = ipaddress.ip_address(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24])
                if found == wanted or (found.is_loopback and wanted.is_loopback):
                    return name
    return ""


def _with_address_6(wanted: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address, *_, name = line.split()
            if ipaddress.ip_address(bytes.fromhex(address)) == wanted:
                return name
    return ""
