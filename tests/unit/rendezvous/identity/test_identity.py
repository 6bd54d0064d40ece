"""The secret, what is derived from it, and who gets in with it."""

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from elastic_run.rendezvous.identity import MEMBER_FILES, SERVER_NAME, contexts
from elastic_run.rendezvous.identity.authority import Authority
from elastic_run.rendezvous.identity.contexts import AGENT_SECONDS, Identity, OwnFiles, in_words
from elastic_run.rendezvous.identity.secret import (
    Invitation,
    NoIdentity,
    Secret,
    new_secret,
    own_folder,
    own_secret,
    parse_invitation,
    parse_secret,
    read_private,
)

DAY = 86_400.0


# -- the secret -------------------------------------------------------------------------------------------------------


def test_a_secret_is_read_as_it_is_written() -> None:
    secret = new_secret()
    assert parse_secret(f" {secret.text}\n", "here") == secret
    assert len(secret.text) == 43 and secret.text.isascii()


@pytest.mark.parametrize("text", ["", "short", "x" * 44, "é" * 43, "a" * 42 + "!"])
def test_what_is_no_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(NoIdentity, match="ELASTIC_RUN_SECRET holds no secret") as told:
        parse_secret(text, "ELASTIC_RUN_SECRET")
    assert not text or text not in str(told.value)


def test_a_secret_is_printed_nowhere_by_accident() -> None:
    secret = new_secret()
    shown = f"{secret!r} {Invitation('h:1', 'job', secret)!r}"
    assert secret.text not in shown and repr(secret.value) not in shown


def test_fingerprints_tell_secrets_apart_and_are_stable() -> None:
    assert Secret(b"\1" * 32).fingerprint == Secret(b"\1" * 32).fingerprint != Secret(b"\2" * 32).fingerprint


def test_a_line_to_join_is_read_as_it_is_written() -> None:
    for endpoints in ("host:2379", "[::1]:2379", "a:1,b:2,c:3"):
        line = Invitation(endpoints, "train-4f", new_secret())
        assert parse_invitation(f"{line.line}\n", "stdin") == line


@pytest.mark.parametrize("line", ["elastic-run://host:1/job", "elastic-run://host:1#abc", "elastic-run:///job#abc"])
def test_an_incomplete_line_to_join_is_refused(line: str) -> None:
    with pytest.raises(NoIdentity, match="no complete line to join"):
        parse_invitation(line, "the line")


def test_a_line_with_another_scheme_is_refused() -> None:
    with pytest.raises(NoIdentity, match="begins with elastic-run://"):
        parse_invitation("https://host/job", "the line")


def test_a_secret_alone_is_an_invitation_too() -> None:
    secret = new_secret()
    assert parse_invitation(secret.text, "the file") == Invitation("", "", secret)


# -- files ------------------------------------------------------------------------------------------------------------


def test_the_first_node_makes_the_users_own_secret_and_the_second_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "elastic-run"
    secret, made = own_secret(folder)
    assert made and own_secret(folder) == (secret, False)
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == ["secret"]


def test_nodes_that_begin_together_make_one_secret(tmp_path: Path) -> None:
    code = "import sys, pathlib; from elastic_run.rendezvous.identity.secret import own_secret; "
    code += "print(own_secret(pathlib.Path(sys.argv[1]))[0].fingerprint)"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x")], stdout=subprocess.PIPE) for _ in range(6)
    ]
    assert len({process.communicate()[0] for process in started}) == 1
    assert not any(process.returncode for process in started)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text(new_secret().text)
    path.chmod(mode)
    with pytest.raises(NoIdentity, match=f"mode {mode:04o}.*chmod 600"):
        read_private(path, "--join-file")


def test_a_link_a_folder_and_a_pipe_are_no_secret(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(new_secret().text)
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "pipe", "absent", "."):
        with pytest.raises(NoIdentity, match="--join-file"):
            read_private(tmp_path / name, "--join-file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(new_secret().text)
    path.chmod(0o600)
    os.chown(path, 65_534, 65_534)
    with pytest.raises(NoIdentity, match="belongs to another user"):
        read_private(path, "--join-file")


def test_a_folder_that_others_can_write_to_or_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o775)
    with pytest.raises(NoIdentity, match="can be written by others"):
        own_secret(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(NoIdentity, match="or a link to one"):
        own_secret(tmp_path / "link")


def test_a_folder_that_others_can_only_list_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed").chmod(0o755)
    own_secret(tmp_path / "listed")
    assert (tmp_path / "listed").stat().st_mode & 0o777 == 0o700


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "elastic-run"
    folder.mkdir(mode=0o700)
    (folder / "secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoIdentity, match="a link is not followed"):
        own_secret(folder)
    assert not (tmp_path / "elsewhere").exists()


def test_a_home_that_cannot_be_written_names_the_ways_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoIdentity, match=r"ELASTIC_RUN_SECRET or with --join-file=FILE, or .* --insecure"):
        own_secret(tmp_path / "file" / "elastic-run")


def test_the_users_folder_follows_the_configured_one(tmp_path: Path) -> None:
    assert own_folder({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "elastic-run"
    assert own_folder({"XDG_CONFIG_HOME": "relative"}) == own_folder({})


# -- who gets in ------------------------------------------------------------------------------------------------------


async def greeted(server: ssl.SSLContext, client: ssl.SSLContext | None) -> str:
    """What a client is told by a server that says a word to whoever has proved itself. Raises OSError."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"welcome\n")
            await writer.drain()
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server, ssl_handshake_timeout=5)
    try:
        port = listening.sockets[0].getsockname()[1]
        name = SERVER_NAME if client is not None else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        try:
            async with asyncio.timeout(10):
                return (await reader.readline()).decode(errors="replace").strip()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    finally:
        listening.close()


async def test_two_processes_that_know_the_secret_meet() -> None:
    secret = new_secret()
    assert await greeted(Identity(secret).server, Identity(secret).client) == "welcome"


async def test_a_process_of_another_secret_is_refused_on_both_sides() -> None:
    one, other = Identity(new_secret()), Identity(new_secret())
    with pytest.raises(ssl.SSLError) as told:
        await greeted(one.server, other.client)
    assert "this node's secret is not that of the other side" in in_words(told.value)


async def test_a_listener_refuses_who_has_no_certificate_or_one_of_another_secret() -> None:
    one, other = Identity(new_secret()), Identity(new_secret())
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    other.client.check_hostname, other.client.verify_mode = False, ssl.CERT_NONE
    for client in (anyone, other.client):
        try:
            told = await greeted(one.server, client)
        except ssl.SSLError as error:  # asyncio raises it or ends the stream, as the alert comes
            told = in_words(error).replace("the other side does not accept this node's secret", "")
            told = "" if told.startswith(":") else told
        except ConnectionError:
            told = ""
        assert not told


async def test_a_connection_takes_little_memory() -> None:
    """A master has one of each node."""
    identity = Identity(new_secret())
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0, ssl=identity.server)
    port = server.sockets[0].getsockname()[1]
    dialed: list[asyncio.StreamWriter] = []

    async def dial(count: int) -> int:
        for _ in range(count):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=identity.client, server_hostname=SERVER_NAME
            )
            dialed.append(writer)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = await dial(2)
        after = await dial(20)
    finally:
        tracemalloc.stop()
        for writer in (*accepted, *dialed):
            writer.transport.abort()
        server.close()
    assert (after - before) / 20 < 4 * contexts.BUFFER_BYTES, "both ends of each"


async def test_a_listener_says_nothing_to_who_speaks_no_tls_or_an_old_one() -> None:
    identity = Identity(new_secret())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await greeted(identity.server, None)
    old = Identity(new_secret()).client
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):
        await greeted(identity.server, old)


@pytest.mark.parametrize(("shift", "words"), [(3 * DAY, "not valid yet"), (-5 * DAY, "has expired")])
async def test_a_clock_that_is_days_off_is_named(shift: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, now = new_secret(), time.time()
    monkeypatch.setattr(contexts.time, "time", lambda: now + shift)
    server = Identity(secret).server
    monkeypatch.undo()
    with pytest.raises(ssl.SSLError) as told:
        await greeted(server, Identity(secret).client)
    assert words in in_words(told.value) and "clocks" in in_words(told.value)


@pytest.mark.parametrize("shift", [0.9 * DAY, -0.9 * DAY])
async def test_a_clock_that_is_hours_off_does_no_harm(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, now = new_secret(), time.time()
    monkeypatch.setattr(contexts.time, "time", lambda: now + shift)
    server = Identity(secret).server
    monkeypatch.undo()
    assert await greeted(server, Identity(secret).client) == "welcome"


async def test_a_certificate_is_renewed_in_the_contexts_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, now = new_secret(), time.time()
    monkeypatch.setattr(contexts.time, "time", lambda: now - 1.1 * DAY)
    one = Identity(secret)
    monkeypatch.undo()
    other, before = Identity(secret), one.pem
    assert not one.renew(now - 0.5 * DAY) and one.pem == before
    assert one.renew(now) and one.pem != before
    assert await greeted(one.server, other.client) == "welcome"
    assert await greeted(other.server, one.client) == "welcome"


def test_a_certificate_ends_and_carries_its_role() -> None:
    from cryptography import x509

    now = time.time()
    issued = Authority.of(new_secret()).issue("agent", AGENT_SECONDS, now, ["node1.example", "10.0.0.1", "fe80::1"])
    found = x509.load_pem_x509_certificate(issued.certificate.encode())
    assert "CN=agent" in found.subject.rfc4514_string()
    assert abs(found.not_valid_after_utc.timestamp() - now - AGENT_SECONDS) < 2
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME, "node1.example"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["10.0.0.1", "fe80::1"]
    assert "PRIVATE" not in repr(issued)


def test_every_holder_of_a_secret_rebuilds_the_same_authority() -> None:
    secret = Secret(bytes(range(32)))
    one, two = (Authority.of(secret) for _ in range(2))
    assert one.key.public_key() == two.key.public_key() != Authority.of(new_secret()).key.public_key()


def test_a_certificate_is_kept_beside_the_users_secret_and_only_for_that(tmp_path: Path) -> None:
    secret, _ = own_secret(tmp_path / "elastic-run")
    folder = tmp_path / "elastic-run"
    first = Identity(secret, cache=folder).pem
    assert Identity(secret, cache=folder).pem == first
    assert (folder / "agent.pem").stat().st_mode & 0o777 == 0o600
    assert Identity(new_secret(), cache=folder).pem != first  # and replaces it, which harms nobody
    (folder / "agent.pem").write_text("garbage")
    assert Identity(secret, cache=folder).pem


def test_a_kept_certificate_needs_no_cryptography(tmp_path: Path) -> None:
    secret, _ = own_secret(tmp_path / "elastic-run")
    Identity(secret, cache=tmp_path / "elastic-run")
    code = (
        "import sys, pathlib; from elastic_run.rendezvous.identity.secret import own_secret; "
        "from elastic_run.rendezvous.identity.contexts import Identity; "
        "folder = pathlib.Path(sys.argv[1]); Identity(own_secret(folder)[0], cache=folder); "
        "assert 'cryptography' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "elastic-run")], check=True)


def test_what_a_member_of_the_store_needs_is_written_once_a_day(tmp_path: Path) -> None:
    identity, now = Identity(new_secret()), time.time()
    folder = tmp_path / "tls"
    assert identity.member_files(folder, lambda: ["localhost"], now)
    assert not identity.member_files(folder, lambda: ["localhost"], now + 0.5 * DAY)
    first = (folder / "member.pem").read_text()
    assert identity.member_files(folder, lambda: ["localhost"], now + 1.5 * DAY)
    assert (folder / "member.pem").read_text() != first
    assert {path.name for path in folder.iterdir()} == {"ca.pem", "member.pem", "issued"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_files_of_a_member_that_lack_one_are_written_though_they_are_young(tmp_path: Path) -> None:
    identity, folder, now = Identity(new_secret()), tmp_path / "tls", time.time()
    for name in MEMBER_FILES:
        identity.member_files(folder, lambda: ["localhost"], now)
        (folder / name).unlink()
        assert identity.member_files(folder, lambda: ["localhost"], now)
        assert (folder / name).exists()


def test_two_agents_that_renew_at_one_time_leave_a_certificate_with_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, folder, now = new_secret(), tmp_path / "tls", time.time()
    one, other, busy, write = Identity(secret), Identity(secret), [False], contexts.replace_own

    def both(path: Path, text: str) -> None:
        write(path, text)
        if not busy[0] and path.name == MEMBER_FILES[1]:
            busy[0] = True
            other.member_files(folder, lambda: ["localhost"], now)
            busy[0] = False

    monkeypatch.setattr(contexts, "replace_own", both)
    one.member_files(folder, lambda: ["localhost"], now)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*(folder / name for name in MEMBER_FILES[1:]))


# -- certificates of the user's own -----------------------------------------------------------------------------------


def own_files(folder: Path, secret: Secret) -> OwnFiles:
    folder.mkdir(exist_ok=True)
    issued = Authority.of(secret).issue("theirs", DAY, time.time())
    for name, text in (("cert", issued.certificate), ("key", issued.key), ("ca", issued.authority)):
        (folder / name).write_text(text)
    return OwnFiles(folder / "cert", folder / "key", folder / "ca")


async def test_certificates_of_the_users_own_are_read_again_when_they_rotate(tmp_path: Path) -> None:
    authority = new_secret()
    one = Identity(None, own=own_files(tmp_path / "one", authority))
    other = Identity(None, own=own_files(tmp_path / "other", authority))
    assert await greeted(one.server, other.client) == "welcome"
    assert not one.renew(time.time())
    own_files(tmp_path / "one", authority)
    assert one.renew(time.time()) and not one.renew(time.time())
    assert await greeted(one.server, other.client) == "welcome"
    with pytest.raises(ssl.SSLError):
        await greeted(one.server, Identity(authority := new_secret()).client)


def test_a_pair_that_does_not_fit_is_refused_and_breaks_nothing(tmp_path: Path) -> None:
    files = own_files(tmp_path / "one", new_secret())
    identity = Identity(None, own=files)
    own_files(tmp_path / "two", new_secret())
    (tmp_path / "one" / "key").write_text((tmp_path / "two" / "key").read_text())
    with pytest.raises(NoIdentity, match="--tls-key"):
        identity.renew(time.time())


# -- where others can look --------------------------------------------------------------------------------------------


def test_a_secret_is_overwritten_in_arguments_and_environment() -> None:
    secret = new_secret().text
    code = (
        "import os, sys; from elastic_run.rendezvous.identity.scrub import scrub; "
        "secret = sys.argv[1].partition('#')[2]; scrub(secret); "
        "shown = open('/proc/self/cmdline').read() + open('/proc/self/environ').read(); "
        "assert secret not in shown and 'job#xxx' in shown and 'OTHER=1' in shown, shown"
    )
    line = f"elastic-run://host:1/job#{secret}"
    environment = {**os.environ, "ELASTIC_RUN_SECRET": secret, "OTHER": "1"}
    subprocess.run([sys.executable, "-c", code, line], check=True, env=environment)
