"""The secret, what is derived from it, and who gets in with it."""

import os
import ssl
import time
from pathlib import Path

import pytest

from elastic_run.rendezvous.identity import MEMBER_FILES, SERVER_NAME, contexts
from elastic_run.rendezvous.identity.authority import Authority
from elastic_run.rendezvous.identity.contexts import AGENT_SECONDS, Identity, OwnFiles
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


def test_a_kept_certificate_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    secret, _ = own_secret(tmp_path / "elastic-run")
    folder = tmp_path / "elastic-run"
    Identity(secret, cache=folder)
    kept = (folder / "agent.pem").read_text()
    for damaged in (
        "garbage",
        "",
        kept[:-1],
        kept[: len(kept) // 2],
        *(_flipped(kept, at) for at in (40, 300, 900, -90)),
    ):
        (folder / "agent.pem").write_text(damaged)
        assert Identity(secret, cache=folder).pem
        assert (folder / "agent.pem").read_text() != damaged, "the next start has it as well"


def _flipped(text: str, at: int) -> str:
    place = at % len(text)
    return f"{text[:place]}{'A' if text[place] != 'A' else 'B'}{text[place + 1 :]}"


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


def test_a_pair_that_does_not_fit_is_refused_and_breaks_nothing(tmp_path: Path) -> None:
    files = own_files(tmp_path / "one", new_secret())
    identity = Identity(None, own=files)
    own_files(tmp_path / "two", new_secret())
    (tmp_path / "one" / "key").write_text((tmp_path / "two" / "key").read_text())
    with pytest.raises(NoIdentity, match="--tls-key"):
        identity.renew(time.time())
