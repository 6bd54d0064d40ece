"""What a job's servers and workers hold, and who is refused in the handshake."""

import ssl
import time
from pathlib import Path

import pytest

from elastic_run.rendezvous.identity import SERVER_NAME, job_mark
from elastic_run.rendezvous.identity.contexts import Identity, OwnFiles
from elastic_run.rendezvous.identity.observer import issue
from elastic_run.rendezvous.identity.secret import NoIdentity, Secret, new_secret
from elastic_run.rendezvous.identity.servers import (
    RENEW_SECONDS,
    VALID_SECONDS,
    ServersIssuer,
    ServersTls,
)
from elastic_run.rendezvous.wire.values import decode, encode

DAY = 86_400.0


def issued(secret: Secret, job: str = "job", now: float | None = None) -> tuple[ServersTls, ServersTls]:
    """A server's and a worker's."""
    return ServersIssuer(Identity(secret), job).certificates(time.time() if now is None else now)


def shake_hands(listens: ssl.SSLContext, dials: ssl.SSLContext) -> str:
    """Why not; empty: each has taken the other for what it is."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = dials.wrap_bio(back, there, server_hostname=SERVER_NAME)
    server = listens.wrap_bio(there, back, server_side=True)
    waiting = [client, server]
    while waiting:
        for each in tuple(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return error.reason or str(error)
    return ""


def test_a_server_admits_servers_and_workers_of_its_job() -> None:
    secret = new_secret()
    (server, _), (other, worker) = issued(secret), issued(secret)
    for each in (other, worker):
        assert shake_hands(server.make_server(), each.make_client()) == ""


def test_a_server_admits_nobody_else() -> None:
    secret = new_secret()
    server, worker = issued(secret)
    observer = issue(Identity(secret), "job", (), DAY, time.time())
    others = {
        "another job's worker": issued(secret, "other")[1],
        "another job's server": issued(secret, "other")[0],
        "another secret's worker": issued(new_secret())[1],
        "an observer": ServersTls("", observer.certificate, observer.key),
        "an agent": ServersTls("", *_pair(Identity(secret))),
    }
    for who, each in others.items():
        dials = ServersTls(server.authority, each.certificate, each.key).make_client()  # which trusts the server
        assert shake_hands(server.make_server(), dials) == "CERTIFICATE_VERIFY_FAILED", who
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.load_verify_locations(cadata=worker.authority)
    assert shake_hands(server.make_server(), nobody) == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


def test_a_worker_cannot_serve_and_another_jobs_server_is_not_asked() -> None:
    secret = new_secret()
    (server, worker), (another, _) = issued(secret), issued(secret, "other")
    for listens in (worker, another):
        tolerant = ServersTls(server.authority, listens.certificate, listens.key).make_server()
        assert shake_hands(tolerant, worker.make_client()) == "CERTIFICATE_VERIFY_FAILED"


def test_agents_and_the_store_take_neither_a_workers_nor_a_servers_certificate() -> None:
    secret = new_secret()
    identity = Identity(secret)
    for each in issued(secret):
        dials = ServersTls(identity.written()["authority"], each.certificate, each.key).make_client()
        assert shake_hands(identity.server, dials) == "CERTIFICATE_VERIFY_FAILED"


def test_certificates_are_issued_anew_each_day_and_fit_those_before() -> None:
    secret, now = new_secret(), time.time()
    issuer = ServersIssuer(Identity(secret), "job")
    server, worker = issuer.certificates(now - RENEW_SECONDS)
    assert issuer.certificates(now - 1.0) == (server, worker)
    newer, _ = issuer.certificates(now)
    assert newer.key != server.key and VALID_SECONDS > 2 * RENEW_SECONDS
    assert shake_hands(newer.make_server(), worker.make_client()) == ""


def test_a_process_goes_on_with_the_certificate_that_it_was_given_last() -> None:
    secret, now = new_secret(), time.time()
    old_server, old_worker = issued(secret, now=now - VALID_SECONDS - 1.0)
    server, worker = issued(secret)
    listens, dials = server.make_server(), old_worker.make_client()
    assert shake_hands(listens, dials) == "CERTIFICATE_VERIFY_FAILED"
    worker.renew(dials)
    assert shake_hands(listens, dials) == ""
    both = old_server.make_server(), old_server.make_client()
    assert shake_hands(both[0], dials) == "CERTIFICATE_VERIFY_FAILED"
    server.renew(*both)
    assert shake_hands(both[0], dials) == shake_hands(listens, both[1]) == ""


def test_a_certificate_crosses_to_another_process_and_shows_its_key_nowhere() -> None:
    secret = new_secret()
    server, _ = issued(secret)
    assert decode(ServersTls, encode(server)) == server
    assert server.key not in repr(server) and secret.text not in encode(server).decode()
    certificate = server.make_server().get_ca_certs()[0]
    assert job_mark("job") in str(certificate["subject"]) and secret.fingerprint in str(certificate["subject"])


def test_a_job_without_a_secret_issues_nothing_and_says_why(tmp_path: Path) -> None:
    written = Identity(new_secret()).written()
    own = OwnFiles(tmp_path / "certificate", tmp_path / "key", tmp_path / "authority")
    for name in ("certificate", "key", "authority"):
        (tmp_path / name).write_text(written[name])
    with pytest.raises(NoIdentity, match="only a job with a secret has servers on several nodes"):
        ServersIssuer(Identity(None, own=own), "job")


def _pair(identity: Identity) -> tuple[str, str]:
    written = identity.written()
    return written["certificate"], written["key"]
