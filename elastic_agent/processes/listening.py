"""What the kernel knows of this machine's ports and addresses; nobody connects, and nobody notices."""

import errno
import socket
import struct

_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_LISTEN = 1 << 10
"""Of TCP's states."""

_HEADER = struct.Struct("=LHHLL")
"""A message's: length, type, flags, sequence, port."""


def listens(port: int) -> bool:
    """Whether a TCP socket listens at `port`, on whatever address. Raises OSError where this kernel does not tell."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        return any(_listens(kernel, family, port) for family in (socket.AF_INET6, socket.AF_INET))


def has_address(address: str) -> bool:
    """Whether an interface has it; True where that cannot be known. Nothing listens, and no port stays taken."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def _listens(kernel: socket.socket, family: int, port: int) -> bool:
    # The request is inet_diag_req_v2: family, protocol, extensions, padding, states; then the socket that is looked
    # for, of which the first field is the port in network order.
    what = struct.pack("=BBBBL", family, socket.IPPROTO_TCP, 0, 0, _LISTEN) + struct.pack("!H", port) + bytes(46)
    kernel.send(_HEADER.pack(_HEADER.size + len(what), _BY_FAMILY, _REQUEST | _DUMP, 0, 0) + what)
    found = False
    while True:
        data = kernel.recv(65536)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", data, _HEADER.size)
                raise OSError(-code, "the kernel does not tell which process listens")
            if kind == _DONE:
                return found
            found = found or kind == _BY_FAMILY
            data = data[(length + 3) & ~3 :]
