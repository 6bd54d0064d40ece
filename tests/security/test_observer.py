"""A stolen observer's credential: what can be done with it to a real job, beside looking at it.

Each attack succeeds with a certificate that only says that its holder is an observer, and that the job's own authority
has issued: such a name limits nothing.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from ssl import SSLContext
from typing import TypeVar

import pytest

from elastic_run.elastic_agent.observation import OBSERVE
from elastic_run.launcher.diagnostics.observed_job import ObservedJob
from elastic_run.master.diagnosis.examination import CONDEMN
from elastic_run.master.diagnosis.requests import Condemned, Done
from elastic_run.master.status import Status
from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.observer import Credentials, issue, read_credentials
from elastic_run.rendezvous.identity.secret import VARIABLE, Secret, new_secret
from elastic_run.rendezvous.rpc.client import Connection
from elastic_run.rendezvous.rpc.envelope import Caller, Nothing, RpcError

from ..integration.cluster import DEADLINE, Cluster, Workers
from ..integration.commands import scraped
from .forger import Forger, steals
from .strangers import SECONDS, Proves, insider, observer

T = TypeVar("T")


class Stolen:
    """An observer's credentials in the hands of somebody who does with them what he can."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    @property
    def pem(self) -> tuple[bytes, bytes, bytes]:
        """For a store."""
        has = self.credentials
        return has.authority.encode(), has.key.encode(), has.certificate.encode()

    @property
    def client(self) -> SSLContext:
        """For an agent's port."""
        return self.credentials.client


def command(cluster: Cluster, *words: str, secret: Secret | None = None) -> "subprocess.CompletedProcess[str]":
    """`elastic-run WORDS`, by somebody whose home folder is empty."""
    home = cluster.directory / "elsewhere"
    home.mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if key not in ("XDG_CONFIG_HOME", VARIABLE)}
    environ = {**kept, "HOME": str(home), **({VARIABLE: secret.text} if secret else {})}
    run = [sys.executable, "-m", "elastic_run", *words]
    return subprocess.run(run, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False)


@contextlib.contextmanager
def serving(cluster: Cluster, path: Path) -> Generator[str]:
    """The address of an exporter of an observer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ("exporter", f"--credentials={path}", f"--listen={address}")
    home = {**os.environ, "HOME": str(cluster.directory / "elsewhere")}
    run = [sys.executable, "-m", "elastic_run", *words]
    with subprocess.Popen(run, env=home, stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout is not None and address in exporter.stdout.readline()
        yield address
        exporter.terminate()
        assert exporter.wait(DEADLINE) == 0


def credentials_of(cluster: Cluster, secret: Secret) -> Path:
    """Made by the command, for this job."""
    path = cluster.directory / "observer.json"
    where = (f"--rdzv-endpoint={cluster.endpoint}", f"--rdzv-id={cluster.job}")
    made = command(cluster, "credentials", str(path), "--days=1", *where, secret=secret)
    assert made.returncode == 0, made.stderr
    return path


async def asks(thief: Proves, reader: Identity, cluster: Cluster, method: str, request: object, answer: type[T]) -> T:
    """What the master's agent answers to the thief. Raises RpcError, OSError."""
    knows = Forger(cluster, insider(reader), insider(reader))
    leader = await knows.reads(knows.keys.leader, Leader)
    told, writer = await failure_detector.dial(leader.agent_address, leader.incarnation, thief.client)
    connection = Connection(told, writer, "the master", Caller(await header_run(knows), "A", leader.incarnation))
    try:
        return await connection.ask(method, request, answer, SECONDS)
    finally:
        await connection.close()
        writer.transport.abort()


async def header_run(knows: Forger) -> str:
    """The run's name, which an observer is told in the job's status."""
    return (await knows.reads(knows.keys.round, Header)).run


@pytest.mark.parametrize("how", ["a name alone", "a role"])
def test_a_stolen_observers_credential_changes_a_job_only_where_its_role_is_a_name_alone(
    how: str, founded: Cluster
) -> None:
    secret = new_secret()
    founded.start("A", nnodes="1:2", env={VARIABLE: secret.text}, conf={"last_call_timeout": 0})
    workers = founded.workers(1)
    reader = Identity(secret)
    named = how == "a name alone"
    path = credentials_of(founded, secret)
    stolen = Identity(secret, role="observer") if named else Stolen(read_credentials(path, 0.0))
    thief, known = observer(stolen), insider(reader)

    async def attack() -> None:
        assert (await asks(stolen, reader, founded, OBSERVE, Nothing(), Status)).job == founded.job
        assert await steals(thief, known, founded) == named
        forger, honest = Forger(founded, thief, known), Forger(founded, known, known)
        before = await honest.reads(honest.keys.round, Header)
        # Each of these would end the job, have its workers meet elsewhere, or have them ask a false master. The store
        # tells nobody that he may not: each is tried until its time is up.
        forgeries = (forger.round, forger.node, forger.master, forger.end) if not named else ()
        assert not any(await asyncio.gather(*(forge() for forge in forgeries)))
        condemned = Condemned(1, 0, "because a thief says so")
        if named:
            assert (await asks(stolen, reader, founded, CONDEMN, condemned, Done)).done
        else:
            with pytest.raises(RpcError, match="an observer may not ask 'condemn'"):
                await asks(stolen, reader, founded, CONDEMN, condemned, Done)
            assert await honest.reads(honest.keys.round, Header) == before

    asyncio.run(attack())
    if named:
        workers = founded.workers(1)  # the condemned one was killed
        assert asyncio.run(Forger(founded, thief, known).end())
        assert founded.finish() == {"A": 0}  # though no worker has ended
        return
    workers.release()
    assert founded.finish() == {"A": 0}


def test_an_observer_sees_the_job_without_its_secret_and_no_other_job(founded: Cluster) -> None:
    secret = new_secret()
    founded.start("A", nnodes="1:2", env={VARIABLE: secret.text}, conf={"last_call_timeout": 0})
    founded.workers(1)
    path = credentials_of(founded, secret)
    assert path.stat().st_mode & 0o777 == 0o600 and secret.text not in path.read_text("utf-8")
    without = command(founded, "status", f"--rdzv-endpoint={founded.endpoint}", f"--rdzv-id={founded.job}")
    assert without.returncode == 1 and "there is no secret of yours" in without.stderr
    shown = command(founded, "status", f"--credentials={path}", "--json")
    assert shown.returncode == 0, shown.stderr
    assert [node["node"] for node in json.loads(shown.stdout)["nodes"]] == ["A"]
    with serving(founded, path) as address:
        served = scraped(address)
    assert served[f'elastic_run_job_up{{job="{founded.job}"}}'] == 1 and "elastic_run_store_up" not in served
    # A file that names the first node alone is enough to see the second, and to go on when the first has gone.
    credentials = read_credentials(path, 0.0)
    founded.start("B", env={VARIABLE: secret.text})
    founded.workers(2)

    async def follow() -> tuple[Status, Workers]:
        job = ObservedJob(credentials)
        try:
            status = await job.status()
            assert [node.node for node in status.nodes] == ["A", "B"]
            await asyncio.to_thread(founded.kill_agent, "A")
            left = await asyncio.to_thread(founded.workers, 1)
            return await job.status(DEADLINE), left
        finally:
            await job.close()

    status, workers = asyncio.run(follow())
    assert [node.node for node in status.nodes] == ["B"]
    workers.release()
    assert founded.finish() == {"B": 0}


def test_whoever_changes_the_job_in_an_observers_file_sees_no_other_job(founded: Cluster) -> None:
    secret = new_secret()
    founded.start("A", nnodes="1:2", env={VARIABLE: secret.text}, conf={"last_call_timeout": 0})
    workers = founded.workers(1)
    credentials = read_credentials(credentials_of(founded, secret), 0.0)
    other = issue(Identity(secret), "another", credentials.agents, 3600.0, credentials.until - 3600.0)
    lied = replace(other, job=founded.job)

    async def look() -> None:
        with pytest.raises(ConnectionError, match="is not an agent that lets this observer in"):  # it hangs up
            await failure_detector.dial(credentials.agents[0], None, lied.client)
        job = ObservedJob(credentials)
        assert (await job.status()).job == founded.job
        await job.close()

    asyncio.run(look())
    workers.release()
    founded.finish()
