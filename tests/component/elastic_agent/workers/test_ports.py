"""Ports for the workers to meet at: chosen before, held until needed."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_run.elastic_agent.workers.ports import OFFERED, Ports


@pytest.fixture
def ports() -> Iterator[Ports]:
    made = Ports()
    yield made
    made.close()


def can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            assert error.errno == errno.EADDRINUSE
            return False
        return True


def test_several_are_offered_and_all_differ(ports: Ports) -> None:
    assert len(set(ports.offered)) == OFFERED


def test_those_offered_are_held_so_that_nobody_takes_them(ports: Ports) -> None:
    assert not any(can_bind(port) for port in ports.offered)


def test_two_agents_on_one_machine_never_offer_the_same(ports: Ports) -> None:
    other = Ports()
    try:
        assert not set(ports.offered) & set(other.offered)
    finally:
        other.close()


def test_they_lie_below_those_that_the_kernel_gives_to_outgoing_connections(ports: Ports) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first < 21_001:
        pytest.skip("this machine gives nearly every port to outgoing connections")
    assert all(1024 <= port < first for port in ports.offered)


def test_one_that_is_released_is_free_for_the_workers(ports: Ports) -> None:
    port = ports.offered[0]
    assert ports.release(port)
    assert can_bind(port)
    assert not can_bind(ports.offered[1])


def test_one_that_was_released_before_may_be_released_again(ports: Ports) -> None:
    assert ports.release(ports.offered[0])
    assert ports.release(ports.offered[0])


def test_one_that_somebody_has_taken_meanwhile_is_not_released(ports: Ports) -> None:
    port = ports.offered[0]
    ports.release(port)
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", port))
        thief.listen()
        assert not ports.release(port)


def linger(port: int) -> None:
    """A connection that was accepted on `port` is closed from there first: the kernel keeps its end for a minute."""
    with socket.create_server(("127.0.0.1", port)) as worker, socket.create_connection(("127.0.0.1", port)) as peer:
        accepted, _ = worker.accept()
        accepted.close()
        assert peer.recv(1) == b""


def test_one_on_which_a_connection_of_an_earlier_round_lingers_is_released(ports: Ports) -> None:
    port = ports.offered[0]
    ports.release(port)
    linger(port)
    assert not can_bind(port)
    assert ports.release(port)


def test_one_that_is_free_again_is_taken_back(ports: Ports) -> None:
    port = ports.offered[0]
    ports.release(port)
    ports.hold()
    assert not can_bind(port)


def test_one_that_is_not_free_yet_is_taken_back_later(ports: Ports) -> None:
    port = ports.offered[0]
    ports.release(port)
    with socket.socket() as worker:
        worker.bind(("127.0.0.1", port))
        worker.listen()
        ports.hold()
    ports.hold()
    assert not can_bind(port)


def test_others_are_offered_where_that_is_asked_and_the_old_are_let_go(ports: Ports) -> None:
    before = ports.offered
    ports.release(before[0])
    ports.renew()
    assert ports.offered != before and len(ports.offered) == OFFERED
    assert all(can_bind(port) for port in set(before) - set(ports.offered))


def test_the_offer_does_not_change_by_itself(ports: Ports) -> None:
    before = ports.offered
    ports.release(before[0])
    ports.hold()
    assert ports.offered == before


def test_closing_lets_go_of_all(ports: Ports) -> None:
    ports.close()
    assert all(can_bind(port) for port in ports.offered)
