"""The kernel's word on who listens, and on who is at the other end."""

import os
import shutil
import socket
import subprocess

import pytest

from elastic_run.rendezvous.host.local_socket import is_own_peer
from elastic_run.rendezvous.host.tcp_sockets import has_address, listens, user_at_other_end


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


@pytest.mark.parametrize("asked", [True, False], ids=["sock_diag", "only /proc"])
class TestWhoIsAtTheOtherEnd:
    @pytest.fixture(autouse=True)
    def kernel(self, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        if not asked:
            monkeypatch.setattr(socket, "AF_NETLINK", socket.AF_INET)  # fails as where the kernel has no sock_diag

    @pytest.mark.parametrize(
        ("listens_at", "called"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")]
    )
    def test_is_this_user_until_the_connection_ends(self, listens_at: str, called: str) -> None:
        family = socket.AF_INET6 if ":" in listens_at else socket.AF_INET
        if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
            pytest.skip("this machine has no IPv6")
        with socket.create_server((listens_at, 0), family=family, dualstack_ipv6=listens_at == "::") as server:
            client = socket.create_connection((called, server.getsockname()[1]))
            accepted, _ = server.accept()
            with accepted:
                assert user_at_other_end(accepted) == os.getuid() and is_own_peer(accepted)
                client.close()  # the kernel shows uid 0 for it from now on, which is root's
                accepted.recv(1)
                assert user_at_other_end(accepted) is None and not is_own_peer(accepted)

    @pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can act as another user")
    def test_is_another_user(self) -> None:
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
        if python is None:
            pytest.skip("another user needs a Python of the system")
        with socket.create_server(("127.0.0.1", 0)) as server:
            code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})).recv(1)"
            words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-c", code]
            with subprocess.Popen(words, cwd="/"):
                accepted, _ = server.accept()
                with accepted:
                    assert user_at_other_end(accepted) == 65534 and not is_own_peer(accepted)
