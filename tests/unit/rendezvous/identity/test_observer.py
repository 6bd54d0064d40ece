"""Who may look at a job and change nothing: the file, and what a listener answers."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from elastic_run.elastic_agent.observation import FRESH, OBSERVE, Observation, shown
from elastic_run.launcher.diagnostics import credentials as command
from elastic_run.launcher.diagnostics.exporter import command as exporter
from elastic_run.launcher.diagnostics.observed_job import ObservedJob
from elastic_run.launcher.diagnostics.running_job import NoAnswer
from elastic_run.launcher.errors import UsageError
from elastic_run.master.diagnosis.evidence import Frame
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.status import Diagnosis, Status
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.observer import DAY, Credentials, issue, read_credentials
from elastic_run.rendezvous.identity.secret import NoIdentity, Secret, new_secret
from elastic_run.rendezvous.rpc.envelope import (
    Caller,
    Encoded,
    Nothing,
    RpcError,
)
from elastic_run.rendezvous.store.endpoint import Endpoint
from elastic_run.rendezvous.wire.values import decode, encode

from ....doubles.statuses import STATUS


def made(secret: Secret, *agents: str, job: str = "job") -> Credentials:
    return issue(Identity(secret), job, agents, DAY, time.time())


# -- what an agent tells observers -------------------------------------------------------------------------------------


async def told(observation: Observation) -> Status:
    """What an observer is answered."""
    given = await observation.methods[OBSERVE].answer(Caller(), Nothing())
    assert isinstance(given, Encoded)
    return decode(Status, given.body)


async def test_however_many_observers_ask_the_master_is_asked_now_and_then() -> None:
    asked, now = 0, 100.0

    async def ask() -> Status:
        nonlocal asked
        asked += 1
        return replace(STATUS, round=asked)

    observation = Observation(ask, lambda: now)
    answers = await asyncio.gather(*(told(observation) for _ in range(20)))
    assert answers == [replace(STATUS, round=1)] * 20
    now += FRESH
    assert await told(observation) == replace(STATUS, round=2)


async def test_a_status_is_encoded_once_for_all_who_ask() -> None:
    async def ask() -> Status:
        return STATUS

    observe = Observation(ask, lambda: 100.0).methods[OBSERVE].answer
    assert await observe(Caller(), Nothing()) is await observe(Caller(), Nothing())


async def test_observers_that_hang_up_do_not_have_the_master_asked_again() -> None:
    began, ended = 0, 0

    async def ask() -> Status:
        nonlocal began, ended
        began += 1
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1
        return STATUS

    observation = Observation(ask, lambda: 100.0)
    for _ in range(20):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0):
                await told(observation)
    assert (began, ended) == (1, 0)
    await observation.close()
    assert (began, ended) == (1, 1)


async def test_an_observer_sees_nothing_that_the_script_prints_and_no_place_in_it() -> None:
    frame = Frame("/home/me/secret_model.py", 7, "step")
    finding = Finding(
        "sleeps",
        3,
        "b",
        "strong",
        where="step, secret_model.py:7",
        waiting=(1, 2),
        waiting_where="all_reduce, secret_model.py:9",
        seconds=40.0,
        last_lines=("the secret password is swordfish",),
        round=2,
        frames=(frame,),
    )
    found = Diagnosis.of(finding, 3.0)

    async def ask() -> Status:
        return replace(STATUS, diagnosis=(found,))

    seen = await told(Observation(ask, lambda: 100.0))
    assert "secret" not in encode(seen).decode()
    (diagnosis,) = seen.diagnosis
    assert diagnosis.words == "rank 3 on node b sleeps, for 40 s; ranks 1-2 wait"
    assert diagnosis == replace(found, words=diagnosis.words, finding=diagnosis.finding)
    assert shown(STATUS) == STATUS


async def test_a_master_that_does_not_answer_is_named_and_asked_again_later() -> None:
    asked, now = 0, 100.0

    async def ask() -> Status:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ConnectionError("it has gone")
        return STATUS

    observation = Observation(ask, lambda: now)
    for _ in range(2):
        with pytest.raises(RpcError, match="the job's master does not answer this agent: it has gone"):
            await told(observation)
    assert asked == 1
    now += FRESH
    assert await told(observation) == STATUS


# -- what an observer sees ---------------------------------------------------------------------------------------------


def test_an_exporter_says_at_its_start_when_the_file_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(*_: object) -> int:
        return 0

    monkeypatch.setattr(exporter, "serve_metrics", serve)
    credentials = replace(made(new_secret()), until=86_400.0)
    asyncio.run(exporter.observe(credentials, Endpoint("127.0.0.1", 9464)))
    assert "the credentials for job 'job' end on 1970-01-02 00:00 UTC" in capsys.readouterr().err


def test_a_job_without_a_registered_node_has_no_credentials_yet() -> None:
    node = replace(STATUS.nodes[0], address="h:1")
    assert command.addressed(replace(STATUS, nodes=(node,))) == ("h:1",)
    with pytest.raises(NoAnswer, match="no node of job 'job' has registered yet"):
        command.addressed(STATUS)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_file_is_read_as_it_is_written_and_has_no_secret_in_it(tmp_path: Path) -> None:
    secret, path = new_secret(), tmp_path / "observer.json"
    credentials = made(secret, "h:1")
    path.write_text(credentials.text)
    path.chmod(0o600)
    assert read_credentials(path, time.time()) == credentials
    assert secret.text not in credentials.text and credentials.key not in repr(credentials)
    with pytest.raises(NoIdentity, match=r"ended 2\.0 days ago: have new ones made"):
        read_credentials(path, credentials.until + 2 * DAY)
    path.chmod(0o644)
    with pytest.raises(NoIdentity, match="chmod 600"):
        read_credentials(path, time.time())


def encrypted(key: str) -> str:
    """The key with a passphrase, for which OpenSSL would ask at the terminal."""
    form, how = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"passphrase")
    loaded = serialization.load_pem_private_key(key.encode(), None)
    return loaded.private_bytes(serialization.Encoding.PEM, form, how).decode()


def test_what_are_no_credentials_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "join"
    path.write_text(new_secret().text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="holds no credentials that elastic-run credentials wrote"):
        command.credentials_in([f"--credentials={path}"], "status")
    with pytest.raises(UsageError, match="leave out --rdzv-id=x"):
        command.credentials_in([f"--credentials={path}", "--rdzv-id=x"], "status")
    with pytest.raises(NoIdentity, match="the observer's certificate cannot be used"):
        ObservedJob(replace(made(new_secret()), key="nothing"))
    with pytest.raises(NoIdentity, match="its key is encrypted with a passphrase"):
        ObservedJob(replace(made(new_secret()), key=encrypted(made(new_secret()).key)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name the file to write first"),
        (["--days=3"], "name the file to write first"),
        (["f", "--days=0"], "--days=0 is no whole number from 1 to 90"),
        (["f", "--days=91"], "--days=91 is no whole number"),
        (["f", "--insecure", "--rdzv-endpoint=h"], "can look at it and change it"),
        (["f", "--nnodes=2"], "does not take --nnodes"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_is_asked(words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        command.main(words, {})
