"""Secrets as platforms mount them, in a mount namespace of the test's own, and read by another user.

The mounts are real; what makes them here is `mount` and not a kubelet, systemd, Docker or Podman.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic_run.rendezvous.identity.secret import new_secret

from .conftest import NOBODY, Elsewhere

SECRET = new_secret()

KUBERNETES = """
mount -t tmpfs -o mode=1777 tmpfs /run/in && mkdir /run/in/..2026_11_25
put /run/in/..2026_11_25/token {mode} {owner}
ln -s ..2026_11_25 /run/in/..data && ln -s ..data/token /run/in/token
mount -o remount,bind,{how} /run/in
"""

SYSTEMD = """
mount -t ramfs ramfs /run/in && put /run/in/token 0440 0:65534
chown 0:65534 /run/in && chmod 0550 /run/in && mount -o remount,bind,ro /run/in
"""

BY_ITSELF = """
put {source} 0444 {owner} && mkdir -p $(dirname {target}) && touch {target}
mount --bind {source} {target} && mount -o remount,bind,{how} {target}
"""

ON_DISK = "mount --bind {disk} /run/in && put /run/in/real {mode} 0:0 && ln -s real /run/in/token\n"

Try = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(elsewhere: Elsewhere, tmp_path: Path) -> Try:
    """Mounts as the shell commands say, and has another user, or root, start a job there."""

    def call(commands: str, file: str = "/run/in/token", user: int = NOBODY) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "given").write_text(f"{SECRET.text}\n")
        begin = (
            f"mkdir /run/in; cp {tmp_path}/given /run/given; chmod 600 /run/given; touch /run/t.py\n"
            'put() { cp /run/given "$1"; chown "$3" "$1"; chmod "$2" "$1"; }\n'
        )
        words = ("--dry-run", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:1", f"--join-file={file}", "t.py")
        return elsewhere(begin + commands, words, user)

    return call


@pytest.mark.parametrize(
    "mounts",
    [
        pytest.param(KUBERNETES.format(mode="0644", owner="0:0", how="ro"), id="Kubernetes"),
        pytest.param(KUBERNETES.format(mode="0440", owner="0:65534", how="ro"), id="Kubernetes, fsGroup"),
        pytest.param(SYSTEMD, id="systemd"),
    ],
)
def test_a_secret_in_a_mount_of_its_platform_is_read(mounts: str, run: Try) -> None:
    done = run(mounts)
    assert SECRET.fingerprint in done.stdout, done.stdout + done.stderr


def test_a_mounted_secret_is_read_by_root_too(run: Try) -> None:
    assert SECRET.fingerprint in run(KUBERNETES.format(mode="0644", owner="0:0", how="ro"), user=0).stdout


@pytest.mark.parametrize(
    ("source", "target", "how"),
    [
        pytest.param("/run/secret", "/run/secrets/token", "ro", id="Docker"),
        pytest.param("{disk}/secret", "/run/secrets/token", "rw", id="Podman"),
        pytest.param("/run/secret", "/run/in/token", "ro", id="Kubernetes, subPath"),
    ],
)
def test_a_secret_that_is_mounted_by_itself_is_read(
    source: str, target: str, how: str, run: Try, tmp_path: Path
) -> None:
    mounts = BY_ITSELF.format(source=source.format(disk=tmp_path), target=target, how=how, owner="0:0")
    done = run(mounts, target)
    assert SECRET.fingerprint in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mounts", "file", "words"),
    [
        pytest.param(KUBERNETES.format(mode="0644", owner="0:0", how="rw"), "/run/in/token", "link", id="writable"),
        pytest.param(KUBERNETES.format(mode="0644", owner="1:1", how="ro"), "/run/in/token", "link", id="another's"),
        pytest.param(
            KUBERNETES.format(mode="0644", owner="0:0", how="ro") + "ln -s /run/in/token /run/link\n",
            "/run/link",
            "link",
            id="a link from elsewhere",
        ),
        pytest.param(ON_DISK.format(disk="{disk}", mode="0644"), "/run/in/token", "link", id="a link on a disk"),
        pytest.param(
            ON_DISK.format(disk="{disk}", mode="0644") + "mount -o remount,bind,ro /run/in\n",
            "/run/in/real",
            "belongs to another user (uid 0)",
            id="a read-only disk",
        ),
        pytest.param(
            BY_ITSELF.format(source="{disk}/secret", target="/run/in/token", how="ro", owner="0:0"),
            "/run/in/token",
            "belongs to another user (uid 0)",
            id="a file of the machine",
        ),
        pytest.param(
            BY_ITSELF.format(source="{disk}/secret", target="/run/secrets/token", how="ro", owner="1:1"),
            "/run/secrets/token",
            "belongs to another user (uid 1)",
            id="another's by itself",
        ),
    ],
)
def test_what_others_may_have_written_or_can_read_is_refused_in_one_sentence(
    mounts: str, file: str, words: str, run: Try, tmp_path: Path
) -> None:
    done = run(mounts.replace("{disk}", str(tmp_path)), file)
    assert words in done.stderr and "read-only mount of secrets" in done.stderr, done.stdout + done.stderr
    assert done.returncode == 2 and SECRET.text not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr and SECRET.fingerprint not in done.stdout
