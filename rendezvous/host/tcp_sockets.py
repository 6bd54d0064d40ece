"""What the kernel knows of this machine's ports, addresses and connections; nobody connects, and nobody notices."""

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_ESTABLISHED, _LISTEN = 1, 10
"""Of TCP's states."""

_MAPPED = bytes(10) + b"\xff\xff"
"""Begins an address of IPv6 that is one of IPv4."""

_HEADER = struct.Struct("=LHHLL")
"""A message's: length, type, flags, sequence, port."""

_SOCKET = struct.Struct("!HH16s16s12s")
"""inet_diag_sockid: both ports, both addresses; then an interface and a cookie, which may be anything."""

_FOUND = struct.Struct("=xBxx48x12xLL")
"""inet_diag_msg: its state, and after the socket the uid and the inode."""


def listens(port: int) -> bool:
    """Whether a TCP socket listens at `port`, on whatever address. Raises OSError where this kernel does not tell."""
    what = _SOCKET.pack(port, 0, b"", b"", b"")
    return any(any(_sockets(family, what, _REQUEST | _DUMP)) for family in (socket.AF_INET6, socket.AF_INET))


def has_address(address: str) -> bool:
    """Whether an interface has it; True where that cannot be known. Nothing listens, and no port stays taken."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def user_at_other_end(connection: socket.socket) -> int | None:
    """The uid of whoever has the other end of an open connection within this machine; None: nobody, or not known.

    The kernel shows uid 0 and no inode for a socket that no process has. Raises OSError where the other end has gone.
    """
    ends = _end(connection.getpeername()), _end(connection.getsockname())
    (theirs, their_port), (ours, our_port) = ends
    what = _SOCKET.pack(their_port, our_port, theirs, ours, bytes(4) + b"\xff" * 8)
    try:
        found = _sockets(socket.AF_INET if len(theirs) == 4 else socket.AF_INET6, what)
    except OSError:  # not with this kernel: its list of all sockets takes 0.2 s where a stranger has opened 16,000
        found = list(_listed(*ends))
    return next((uid for state, uid, inode in found if state == _ESTABLISHED and inode), None)


def _end(address: tuple[str, int]) -> tuple[bytes, int]:
    """The bytes of an address, of IPv4 also where it is written as one of IPv6, and the port."""
    host, port, *_ = address
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    return packed.removeprefix(_MAPPED), port


def _listed(*ends: tuple[bytes, int]) -> Iterator[tuple[int, int, int]]:
    """State, uid and inode, as /proc has them: each four bytes of an address are in this machine's order."""
    for name, begin in ("tcp", b""), ("tcp6", _MAPPED if len(ends[0][0]) == 4 else b""):
        words = [struct.unpack(f"={len(begin + address) // 4}L", begin + address) for address, _ in ends]
        wanted = [
            f"{''.join(f'{each:08X}' for each in w)}:{port:04X}" for w, (_, port) in zip(words, ends, strict=True)
        ]
        with contextlib.suppress(OSError):
            for fields in map(str.split, Path(f"/proc/net/{name}").read_text().splitlines()):
                if fields[1:3] == wanted:
                    yield int(fields[3], 16), int(fields[7]), int(fields[9])


def _sockets(family: int, what: bytes, flags: int = _REQUEST) -> list[tuple[int, int, int]]:
    """State, uid and inode of each socket that the kernel finds. Raises OSError."""
    # The request is inet_diag_req_v2: family, protocol, extensions, padding, states; then the socket.
    request = struct.pack("=BBBBL", family, socket.IPPROTO_TCP, 0, 0, 1 << _LISTEN) + what
    found = list[tuple[int, int, int]]()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, flags, 0, 0) + request)
        while True:
            data = kernel.recv(65536)
            while data:
                length, kind, *_ = _HEADER.unpack_from(data)
                if kind == _ERROR:
                    (code,) = struct.unpack_from("=i", data, _HEADER.size)
                    raise OSError(-code, "the kernel does not tell whose sockets there are")
                if kind == _BY_FAMILY:
                    found.append(_FOUND.unpack_from(data, _HEADER.size))
                if kind == _DONE or flags == _REQUEST:
                    return found
                data = data[(length + 3) & ~3 :]
