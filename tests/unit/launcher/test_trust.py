"""What a command line, an environment and a line to join say of the job's secret."""

import io
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elastic_run.launcher import trust
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.settings import Options, Trust
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import VARIABLE, Invitation, NoIdentity, new_secret
from elastic_run.rendezvous.store.endpoint import Endpoint, parse_endpoints

SECRET = new_secret()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path / "train.py"


def options(*words: str, **environ: str) -> Options:
    return parse([*words, "train.py"], environ)


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.usefixtures("script")
def test_the_environment_and_a_file_give_the_secret(tmp_path: Path) -> None:
    file = private(tmp_path / "file", SECRET.text)
    assert options("--nnodes=2", ELASTIC_RUN_SECRET=SECRET.text).trust == Trust(secret=SECRET)
    other = new_secret().text
    assert options("--nnodes=2", f"--join-file={file}", ELASTIC_RUN_SECRET=other).trust.secret == SECRET
    assert options("--nnodes=2").trust == Trust()


@pytest.mark.usefixtures("script")
def test_a_file_with_the_line_to_join_says_where_the_job_is(tmp_path: Path) -> None:
    file = private(tmp_path / "file", Invitation("10.0.0.1:29500", "train-4f", SECRET).line)
    found = options("--nnodes=2", f"--join-file={file}")
    assert found.store.endpoints == (Endpoint("10.0.0.1", 29500),) and found.job_id == "train-4f"
    assert options("--nnodes=2", f"--join-file={file}", "--rdzv-endpoint=h").store.endpoints == (Endpoint("h"),)


@pytest.mark.usefixtures("script")
def test_no_message_and_no_value_repeats_a_secret(tmp_path: Path) -> None:
    found = options("--nnodes=2", ELASTIC_RUN_SECRET=SECRET.text)
    assert SECRET.text not in repr(found)
    with pytest.raises(UsageError, match=f"{VARIABLE} holds no secret") as told:
        options("--nnodes=2", ELASTIC_RUN_SECRET=SECRET.text[:-1])
    assert SECRET.text[:-1] not in str(told.value)


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("words", [("--tls-cert=train.py",), ("--tls-cert=train.py", "--tls-key=train.py")])
def test_certificates_of_ones_own_are_three_files(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="belong together"):
        options("--nnodes=2", *words)


@pytest.mark.usefixtures("script")
def test_insecure_contradicts_a_secret_that_is_given(tmp_path: Path) -> None:
    file = private(tmp_path / "file", SECRET.text)
    with pytest.raises(UsageError, match="--insecure contradicts"):
        options("--nnodes=2", "--insecure", f"--join-file={file}")
    assert options("--nnodes=2", "--insecure", ELASTIC_RUN_SECRET=SECRET.text).trust == Trust(insecure=True)


@pytest.mark.usefixtures("script")
def test_other_nodes_are_told_of_insecure_and_not_of_a_file() -> None:
    assert "--insecure" in options("--nnodes=2", "--insecure").given


def test_a_line_to_join_becomes_flags_and_a_secret() -> None:
    line = Invitation("h:1", "job", SECRET).line
    words, environ = trust.joined([line, "--nnodes=2", "train.py"], {"A": "1"})
    assert words == ["--rdzv-endpoint=h:1", "--rdzv-id=job", "--nnodes=2", "train.py"]
    assert environ == {"A": "1", VARIABLE: SECRET.text}


def test_a_line_to_join_is_read_from_standard_input_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Invitation("h:1", "job", SECRET).line
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{line}\n"))
    assert trust.joined(["-", "t.py"], {}) == trust.joined([str(private(tmp_path / "line", line)), "t.py"], {})


@pytest.mark.parametrize("line", ["elastic-run://h:1", "elastic-run://h:1/", "elastic-run:///job#"])
def test_a_line_to_join_without_a_secret_has_an_address_and_a_job(line: str) -> None:
    with pytest.raises(UsageError, match="is no complete line to join: expected elastic-run://HOST:PORT/JOB"):
        trust.joined([line, "t.py"], {})


@pytest.mark.parametrize("words", [(), ("--nnodes=2",)])
def test_join_needs_a_line(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="give - to read the line that the first node prints"):
        trust.joined(words, {})


def test_a_secret_alone_is_no_line_to_join(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the line has no address"):
        trust.joined([str(private(tmp_path / "file", SECRET.text))], {})


def test_stores_of_the_users_own_are_not_protected_by_the_secret() -> None:
    identity = Identity(SECRET)
    ours, plain, tls = trust.protected(parse_endpoints("a,http://b,https://c"), identity)
    assert ours == replace(Endpoint("a"), secret=identity.fingerprint)
    assert not plain.secret and not tls.secret
    assert trust.protected(parse_endpoints("a"), None) == parse_endpoints("a")


def test_nodes_say_with_which_secret_they_prove_themselves_and_not_the_secret() -> None:
    said = trust.mark(Trust(), Identity(SECRET))
    assert SECRET.fingerprint in said and SECRET.text not in said
    assert "--insecure" in trust.mark(Trust(insecure=True), None)


def test_the_secret_is_taken_out_of_the_environment() -> None:
    environ = {VARIABLE: SECRET.text, "A": "1"}
    trust.take(environ)
    assert environ == {"A": "1"}


def test_the_users_own_secret_is_made_once_and_said(tmp_path: Path) -> None:
    said: list[str] = []
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    first = trust.identity_of(Trust(), (Endpoint("a"),), said.append, environ=environ)
    again = trust.identity_of(Trust(), (Endpoint("a"),), said.append, environ=environ)
    assert first is not None and again is not None and first.fingerprint == again.fingerprint
    assert len(said) == 1 and str(tmp_path) in said[0]
    assert trust.identity_of(Trust(insecure=True), (), said.append, environ=environ) is None


def test_arguments_are_compared_and_not_shown() -> None:
    first, second = Identity(SECRET), Identity(new_secret())
    shown = trust.concealed(["--password=hush", "a", "a"], first)
    assert "hush" not in "".join(shown) and len(set(shown)) == 3
    assert shown == trust.concealed(["--password=hush", "a", "a"], Identity(SECRET))
    assert shown != trust.concealed(["--password=hush", "a", "a"], second), "who knows no secret cannot try values"
    many = [str(number) for number in range(200)]
    assert len(trust.concealed(many, None)) == trust.MOST_DIGESTS + 1
    assert trust.concealed(many, None) != trust.concealed([*many[:-1], "x"], None)


def test_who_only_asks_a_job_makes_no_secret(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    with pytest.raises(NoIdentity, match="copy it from a node of the job"):
        trust.identity_of(Trust(), (Endpoint("a"),), print, "observer", environ, make=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("insecure", [(), ("--insecure",)])
@pytest.mark.parametrize("job", ["job", "it's #1/a"])
def test_a_log_gets_a_line_that_joins_by_itself_and_says_where_the_secret_is(
    job: str, insecure: tuple[str, ...], tmp_path: Path
) -> None:
    path = str(private(tmp_path / "t.py", ""))
    found = parse(["--nnodes=2", *insecure, f"--rdzv-id={job}", path], {})
    made = trust.identity_of(found.trust, (Endpoint("a"),), print, environ={"XDG_CONFIG_HOME": str(tmp_path)})
    lines = trust.invitation_lines(found, (Endpoint("a"),), made)
    words = shlex.split(lines[0])
    assert words[:2] == ["elastic-run", "join"]
    told = ["--rdzv-endpoint=a:2379", f"--rdzv-id={job}", "--nnodes=2", *insecure, path]
    assert trust.joined(words[2:], {"A": "1"}) == (told, {"A": "1"})
    kept = [f"copy {tmp_path / 'elastic-run' / 'secret'} there first"][: 0 if insecure else 1]
    assert len(lines) == 1 + len(kept) and all(each in lines[1] for each in kept)
    if made is not None:
        given = trust.invitation_lines(found, (Endpoint("a"),), Identity(SECRET))
        assert "copy" not in given[1] and VARIABLE in given[1] and SECRET.text not in "".join(given)
