"""Abstract Unix sockets, and TCP over loopback, between the processes of one user on one machine.

They have no permissions: everybody on the machine can read their names, connect, fill the queue of who listens, and
listen under a name whose owner has gone. So both ends ask the kernel whose process the other end is, and who finds the
queue full waits for room.
"""

import errno
import os
import socket
import struct
import time

from .tcp_sockets import user_at_other_end

_CREDENTIALS = struct.Struct("3i")
"""What SO_PEERCRED gives: pid, uid, gid."""

_TIMEVAL = struct.Struct("@ll")
"""Seconds and microseconds."""


class NotOwnSocket(OSError):
    """Another user's process listens there."""


def own_peer(connection: socket.socket) -> int | None:
    """The pid of the process at the other end, where it is this user's."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid if uid == os.getuid() else None


def is_own_peer(connection: socket.socket) -> bool:
    """Whether this user has the other end: asked once, before anything is read of it."""
    if connection.family == socket.AF_UNIX:
        return own_peer(connection) is not None
    try:
        return user_at_other_end(connection) == os.getuid()
    except OSError:
        return False


def connected(address: str, seconds: float) -> socket.socket:
    """A blocking connection to a process of this user that listens there; waits so long for room in its queue.

    Args:
        address: `@` and the name, as in ELASTIC_RUN_AGENT.

    Raises OSError: a TimeoutError where there was no room, a NotOwnSocket where another user listens.
    """
    name = address.removeprefix("@")
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(found, f"\0{name}", time.monotonic() + seconds)
        if own_peer(found) is None:
            raise NotOwnSocket(f"another user's process listens under the name {name}")
    except BaseException:
        found.close()
        raise
    return found


def _connect(found: socket.socket, address: str, until: float) -> None:
    """The kernel lets who blocks wait for room, and tells who does not at once that there is none."""
    while (left := until - time.monotonic()) > 0:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(left), int(left % 1 * 1e6) or 1))
        try:
            found.connect(address)
            found.getpeername()
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # what is left where a signal broke the wait off
                raise
            continue
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, 0))
        return
    raise TimeoutError("the queue of connections there is full")
