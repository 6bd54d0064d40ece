"""Where the secret of a job could be read: in whatever its processes have in memory, print, write and serve."""

import asyncio
import contextlib
import json
import resource
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from elastic_run.rendezvous.identity import SERVER_NAME
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import VARIABLE, Secret, new_secret
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore, Proof

from ..integration.cluster import Cluster, command_line

SECONDS = 60.0


def memory(pid: int) -> bytes:
    """All that a process could write into a core file; nothing where it has ended."""
    found = bytearray()
    with (
        contextlib.suppress(FileNotFoundError, ProcessLookupError),
        Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file,
    ):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if not words[1].startswith("rw"):
                continue
            begin, end = (int(at, 16) for at in words[0].split("-"))
            try:
                file.seek(begin)
                found += file.read(end - begin)
            except (OSError, OverflowError):
                continue  # a part that the kernel keeps
    return bytes(found)


def shown(secret: Secret, text: bytes) -> bool:
    """Whether it can be read there, as text or as it is."""
    return secret.text.encode() in text or secret.value in text


async def kept(cluster: Cluster, identity: Identity) -> bytes:
    """All that the store holds."""
    store = EtcdStore([str(cluster.endpoint)], tls=Proof(lambda: identity.pem, SERVER_NAME))
    try:
        return b"".join(item.key.encode() + item.value for item in (await store.list("/")).items)
    finally:
        await store.close()


def test_the_secret_is_in_no_worker_and_in_nothing_that_is_written_printed_or_served(
    founded: Cluster, tmp_path: Path
) -> None:
    secret = new_secret()
    written = tmp_path / "written"
    founded.start(
        *("A", "B"),
        nnodes=2,
        env={VARIABLE: secret.text},
        log_dir=str(written / "logs"),
        trace=str(written / "trace"),
        summary_json=str(written / "summary.json"),
        tee="3",
        max_restarts=1,
        prefix=("prlimit", "--core=4096:8192"),
    )
    founded.workers(2).tell("raise ValueError('once')")
    workers = founded.workers(2)
    # The agents know it, and so the search finds it where it is.
    assert any(shown(secret, memory(node.process.pid)) for node in founded.nodes.values())
    others = set(founded.processes()) - {node.process.pid for node in founded.nodes.values()}
    assert {worker.pid for worker in workers} <= others
    # They write no core file and have none collected, while workers have the limit that the user has set.
    for node in founded.nodes.values():
        assert resource.prlimit(node.process.pid, resource.RLIMIT_CORE) == (1, 8192)
    for worker in workers:
        assert resource.prlimit(worker.pid, resource.RLIMIT_CORE) == (4096, 8192)
    holders = {pid: command_line(pid) for pid in others if shown(secret, memory(pid))}
    assert not holders, "in the memory of processes that do not need it"
    assert not shown(secret, asyncio.run(kept(founded, Identity(secret))))

    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    reach = (f"--rdzv-endpoint={founded.endpoint}", f"--rdzv-id={founded.job}")
    elastic, env = [sys.executable, "-m", "elastic_run"], {VARIABLE: secret.text, "PATH": "/usr/bin:/bin"}
    for words in ("--json", ""):
        command = [*elastic, "status", *reach, *([words] if words else [])]
        done = subprocess.run(command, env=env, capture_output=True, timeout=SECONDS, check=True)
        assert founded.job.encode() in done.stdout and not shown(secret, done.stdout + done.stderr)
    with subprocess.Popen([*elastic, "exporter", *reach, f"--listen={address}"], env=env, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        try:
            said = it.stdout.readline()
            for page in ("/metrics", "/"):
                with urllib.request.urlopen(f"http://{address}{page}", timeout=SECONDS) as answer:
                    said += answer.read()
        finally:
            it.terminate()
    assert founded.job.encode() in said and not shown(secret, said)

    workers.release()
    assert founded.finish() == {"A": 0, "B": 0}
    assert json.loads((written / "summary.json").read_text())["outcome"] == "succeeded"
    for path in (*written.rglob("*"), *(node.log for node in founded.nodes.values())):
        assert not path.is_file() or not shown(secret, path.read_bytes()), path
