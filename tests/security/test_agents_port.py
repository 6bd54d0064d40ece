"""What a listener of agents takes from the network: recorded messages, and certificates that prove nothing."""

import asyncio
import contextlib
import datetime
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from elastic_run.rendezvous.failure_detector import AgentListener, dial
from elastic_run.rendezvous.identity import SERVER_NAME
from elastic_run.rendezvous.identity.authority import Authority
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import Secret, new_secret
from elastic_run.rendezvous.rpc.client import Connection
from elastic_run.rendezvous.rpc.envelope import Caller, Security
from elastic_run.rendezvous.rpc.server import Method

from .listener import Words

SECONDS = 60.0
"""For an answer, on a busy machine."""

MONTH = 30 * 86_400.0
"""Seconds."""


@dataclass
class Counter:
    """What the agent is asked, and how often it was."""

    times: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def count(self, _: Caller, words: Words) -> Words:
        """One more."""
        self.times += 1
        self.asked.set()
        return words


@contextlib.asynccontextmanager
async def listening(counter: Counter, identity: Identity | None) -> AsyncIterator[str]:
    """The address of an agent's listener."""
    security = Security(server=identity.server) if identity is not None else Security()
    listener = AgentListener("A1", methods={"count": Method(Words, counter.count)}, security=security)
    await listener.start("127.0.0.1", "127.0.0.1")
    try:
        yield listener.address
    finally:
        await listener.close()


async def ask(address: str, tls: ssl.SSLContext | None) -> None:
    """Has it count one more. Raises OSError."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await dial(address, "A1", tls)
        connection = Connection(reader, writer, "the agent", Caller("run", "B", "B1"))
        try:
            await connection.ask("count", Words("one more"), Words, SECONDS)
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def recorder(address: str, heard: bytearray) -> AsyncIterator[str]:
    """An address in the middle, which passes everything on and keeps what was said to the agent."""
    host, _, port = address.rpartition(":")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, keep: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if keep is not None:
                    keep += data
                target.write(data)
        target.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, back, heard), copy(there, writer, None))

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def replay(address: str, heard: bytes) -> None:
    """Says it again, and waits until the agent has hung up or answered."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(OSError):
        writer.write(heard)
        writer.write_eof()
        async with asyncio.timeout(SECONDS):
            while await reader.read(65536):
                pass
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("protected", [False, True], ids=["without a secret", "with a secret"])
async def test_a_recorded_message_is_obeyed_again_only_where_there_is_no_secret(protected: bool) -> None:
    identity = Identity(new_secret()) if protected else None
    counter, heard = Counter(), bytearray()
    async with listening(counter, identity) as address:
        async with recorder(address, heard) as between:
            await ask(between, identity.client if identity else None)
        assert counter.times == 1 and heard
        assert (b"one more" in heard) == (not protected)
        await replay(address, bytes(heard))
        assert counter.times == (1 if protected else 2)
        await ask(address, identity.client if identity else None)  # and it still listens


Pem = tuple[str, str, str]
"""The authority, the certificate and its key."""


def issued(secret: Secret, at: float) -> Pem:
    """What a holder of the secret would have issued itself at that time, for a day."""
    made = Authority.of(secret).issue("agent", 86_400.0, at)
    return made.authority, made.certificate, made.key


def self_signed(secret: Secret) -> Pem:
    """It carries the name of the job's authority, and is signed by nobody but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = Authority.of(secret).name, datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)])
    return _signed(key, key, name, name, alternative, now)


def of_another_name(secret: Secret) -> Pem:
    """The job's authority has signed it, for another host."""
    authority, key = Authority.of(secret), ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elsewhere")])
    alternative = x509.SubjectAlternativeName([x509.DNSName("elsewhere.example")])
    return _signed(key, authority.key, subject, authority.name, alternative, now)


def _signed(
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    alternative: x509.SubjectAlternativeName,
    now: datetime.datetime,
) -> Pem:
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .sign(by, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return "", made.public_bytes(pem).decode(), private.decode()


def wrong(secret: Secret, how: str) -> Pem:
    """A certificate that proves nothing."""
    match how:
        case "expired":
            return issued(secret, time.time() - MONTH)
        case "not valid yet":
            return issued(secret, time.time() + MONTH)
        case "another job's":
            return issued(new_secret(), time.time())
        case "self-signed":
            return self_signed(secret)
        case "an observer's":
            made = Authority.of_observers(secret).issue_to_observer("another", MONTH, time.time())
            return made.authority, made.certificate, made.key
        case _:
            return of_another_name(secret)


def loaded(context: ssl.SSLContext, pem: Pem, folder: "pytest.TempPathFactory") -> ssl.SSLContext:
    """The context, with that certificate; it believes everybody."""
    path = folder.mktemp("pem") / "both"
    path.write_text(pem[1] + pem[2])
    context.load_cert_chain(path)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


CASES = ("expired", "not valid yet", "another job's", "self-signed", "an observer's")


@pytest.mark.parametrize("how", CASES)
async def test_who_shows_a_wrong_certificate_is_answered_nothing(
    how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = new_secret()
    identity, counter = Identity(secret), Counter()
    client = loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), wrong(secret, how), tmp_path_factory)
    async with listening(counter, identity) as address:
        with pytest.raises(OSError):
            await ask(address, client)
        assert counter.times == 0
        identity.server.verify_mode = ssl.CERT_NONE  # the attack itself is one: a listener that does not ask obeys
        await ask(address, client)
        assert counter.times == 1


@pytest.mark.parametrize("how", [*CASES, "another name"])
async def test_who_listens_with_a_wrong_certificate_is_told_nothing(
    how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = new_secret()
    identity, counter = Identity(secret), Counter()
    false = Identity(secret)
    false.server = loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), wrong(secret, how), tmp_path_factory)
    async with listening(counter, false) as address:
        with pytest.raises(OSError):
            await ask(address, identity.client)
        assert counter.times == 0
        trusting = Identity(secret).client
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        await ask(address, trusting)  # who does not look is caught
        assert counter.times == 1
