"""What takes connections, where the socket cannot be listened on."""

import socket

import pytest

from elastic_run.rendezvous.rpc.acceptor import Acceptor


async def test_a_socket_that_cannot_be_listened_on_is_closed() -> None:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    acceptor = Acceptor(bound, socket.socket.close, lambda _: None)
    with pytest.raises(OSError, match="not supported"):
        acceptor.start(1)
    assert bound.fileno() == -1
    acceptor.close()
