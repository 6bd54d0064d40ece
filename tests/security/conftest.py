"""Attacks on real jobs and on their parts.

Each attack is also done to the same thing without its protection, where it has to succeed: a test here can fail.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from elastic_run.rendezvous import failure_detector

from ..integration.cluster import Cluster, embedded_ports, failure
from ..integration.conftest import alone, etcd, etcd_with, job, shared_etcd

NOBODY = 65534
"""Another user."""

REPOSITORY = Path(__file__).parents[2]

PATIENCE = 15.0
"""Seconds within which an agent greets whom it lets in, on a busy machine."""

Elsewhere = Callable[[str, Sequence[str], int], "subprocess.CompletedProcess[str]"]

__all__ = ["alone", "etcd", "etcd_with", "founded", "job", "shared_etcd"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent asks again where nobody has greeted it; what attacks here asks once."""
    monkeypatch.setattr(failure_detector, "HELLO_TIMEOUT", PATIENCE)


@pytest.fixture
def founded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A job that starts its own store."""
    endpoint = f"127.0.0.1:{embedded_ports(1)[0]}"
    with Cluster(tmp_path / "job", endpoint, failure(request), embedded=True) as made:
        yield made


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    """elastic-run as that user would have it, in /run of a mount namespace of its own, which shell commands prepare.

    The first folder of its PATH, /run/closed, may not be entered.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("only root can mount, with unshare, and act as another user, with setpriv")

    def call(commands: str, words: Sequence[str], user: int) -> "subprocess.CompletedProcess[str]":
        tmp_path.chmod(0o755)
        begin = (
            "set -e\nmount -t tmpfs tmpfs /run; cd /run; mkdir repository packages python closed; chmod 700 closed\n"
            f"mount --bind {REPOSITORY} repository; mount --bind {sysconfig.get_path('purelib')} packages\n"
            f"mount --bind {sys.base_prefix} python\n"
        )
        who = 'setpriv "--reuid=$1" "--regid=$1" --clear-groups'
        ask = f'\ncd /run; exec {who} python/bin/python3 -m elastic_run "${{@:2}}"'
        environment = {
            "PATH": f"/run/closed:{os.environ['PATH']}",
            "PYTHONPATH": "/run/repository/src:/run/packages",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = ["unshare", "--mount", "--propagation=private", "bash", "-c", begin + commands + ask, "bash"]
        return subprocess.run(
            [*command, str(user), *words], capture_output=True, text=True, check=False, env=environment
        )

    return call
