"""The kernel's word on who listens."""

import socket

import pytest

from elastic_run.elastic_agent.processes.listening import has_address, listens


def test_a_port_at_which_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert listens(server.getsockname()[1])


def test_a_connection_from_a_port_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert not listens(client.getsockname()[1])


def test_a_port_that_is_only_held() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert not listens(held.getsockname()[1])


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_listener_on_every_address_of_both_families() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        assert listens(server.getsockname()[1])


def test_an_address_of_this_machine_is_told_from_another() -> None:
    assert has_address("127.0.0.1") and has_address("")
    assert not has_address("203.0.113.7")
    assert has_address("no address"), "a doubt is no loss"
