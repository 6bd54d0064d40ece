"""The secret, what is derived from it, and who gets in with it."""

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from elastic_run.rendezvous.identity import SERVER_NAME, contexts
from elastic_run.rendezvous.identity.authority import Authority
from elastic_run.rendezvous.identity.contexts import Identity, OwnFiles, in_words
from elastic_run.rendezvous.identity.secret import (
    Secret,
    new_secret,
    own_secret,
)

DAY = 86_400.0


# -- files ------------------------------------------------------------------------------------------------------------


def test_nodes_that_begin_together_make_one_secret(tmp_path: Path) -> None:
    code = "import sys, pathlib; from elastic_run.rendezvous.identity.secret import own_secret; "
    code += "print(own_secret(pathlib.Path(sys.argv[1]))[0].fingerprint)"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x")], stdout=subprocess.PIPE) for _ in range(6)
    ]
    assert len({process.communicate()[0] for process in started}) == 1
    assert not any(process.returncode for process in started)


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


@pytest.mark.parametrize("shift", [3 * DAY, 80 * DAY])
def test_a_clock_that_is_days_ahead_is_named_to_who_dials(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, now = new_secret(), time.time()
    server = Identity(secret).server
    monkeypatch.setattr(contexts.time, "time", lambda: now + shift)
    client = Identity(secret).client
    monkeypatch.undo()
    here, there = socket.socketpair()
    with here, there:
        for end in (here, there):
            end.settimeout(10)

        def serve() -> None:
            with contextlib.suppress(ssl.SSLError), server.wrap_socket(there, server_side=True):
                pass

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(ssl.SSLError) as told, client.wrap_socket(here, server_hostname=SERVER_NAME) as dialed:
            dialed.recv(1)
        serving.join(10)
    assert "clocks" in in_words(told.value) and "join-file" not in in_words(told.value)


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
