"""Another user of the same machine: plants folders and links, calls agents, and reads what /proc shows of them."""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from elastic_run.adapters.client.channel import AgentGone, Call, Channel
from elastic_run.adapters.horovod import node_rendezvous
from elastic_run.adapters.horovod.node_rendezvous import NodeRendezvous, Told
from elastic_run.adapters.horovod.requests import Request, ask
from elastic_run.launcher.diagnostics.local_jobs import local_jobs
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.history.records import SUFFIX, Begun, line
from elastic_run.launcher.node_check import collective
from elastic_run.launcher.options.config_file import completed
from elastic_run.launcher.options.flags import scan
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.report.command import main as report
from elastic_run.master.history import History
from elastic_run.rendezvous.identity.secret import VARIABLE, new_secret

from ..integration.cluster import Cluster, embedded_ports, failure
from .conftest import NOBODY, Elsewhere
from .sockets import listening

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can act as another user, with setpriv"
)


def as_another(*command: str) -> "subprocess.CompletedProcess[str]":
    """What it prints."""
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")


@pytest.fixture
def embedded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A job whose agents start their store."""
    [port] = embedded_ports(1)
    with Cluster(tmp_path / "job", f"127.0.0.1:{port}", failure(request), embedded=True) as made:
        yield made


@pytest.mark.parametrize("plant", ["folder", "link"])
def test_who_makes_the_embedded_stores_folder_first_does_not_keep_it_from_starting(
    plant: str, embedded: Cluster, tmp_path: Path
) -> None:
    temporary: Path = vars(embedded)["_temporary"]
    temporary.chmod(0o1777)  # as /tmp is
    first = temporary / f"elastic-run-{os.getuid()}"
    if plant == "folder":
        done = as_another("mkdir", "--mode=0777", str(first))
    else:
        done = as_another("ln", "--symbolic", "/var/lib", str(first))
    assert done.returncode == 0, done.stderr
    own = tmp_path / "runtime"
    own.mkdir(mode=0o700)
    embedded.start("A", "B", nnodes=2, env={"XDG_RUNTIME_DIR": str(own)})
    embedded.workers(2).release()
    assert embedded.finish() == {"A": 0, "B": 0}
    assert first.lstat().st_uid == NOBODY
    if plant == "folder":
        assert not list(first.iterdir())


def test_another_users_process_is_no_worker_of_an_agent(job: Cluster, tmp_path: Path) -> None:
    job.start("A", "B", nnodes=2)
    workers = job.workers(2)
    told = tmp_path / "address"
    workers.do(0, f"import os; open({str(told)!r}, 'w').write(os.environ['ELASTIC_RUN_AGENT'])")
    name = told.read_text().removeprefix("@")
    code = (
        "import socket, sys\n"
        "asking = socket.socket(socket.AF_UNIX)\n"
        "asking.settimeout(60)\n"
        f"asking.connect('\\0{name}')\n"
        "try:\n"
        "    print(asking.recv(1) == b'')\n"
        "except ConnectionResetError:\n"
        "    print(True)\n"
    )
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("another user needs a Python of the system")
    assert as_another(python, "-c", code).stdout.strip() == "True"
    with socket.socket(socket.AF_UNIX) as own:  # the same, as this user: the connection stays
        own.connect(f"\0{name}")
        own.settimeout(0.5)
        with pytest.raises(TimeoutError):
            own.recv(1)
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}


FLOOD = """
import socket, sys, time

until, name = time.monotonic() + 60, sys.argv[1]
full = False
while time.monotonic() < until:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(f"\\0{name}")
        except BlockingIOError:
            if not full:
                print("full", flush=True)
            full = True
        except ConnectionRefusedError:
            break
"""
"""Connects as fast as it can, and says when the queue of connections was full for the first time."""


def test_who_fills_the_queue_of_an_agents_socket_keeps_no_worker_from_asking(alone: Cluster, tmp_path: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("another user needs a Python of the system")
    alone.start("A", max_restarts=0)
    workers = alone.workers(1)
    told = tmp_path / "told"
    workers.do(0, f"import os; open({str(told)!r}, 'w').write(os.environ['ELASTIC_RUN_AGENT'])")
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python, "-c", FLOOD]
    with subprocess.Popen([*words, told.read_text().removeprefix("@")], stdout=subprocess.PIPE, cwd="/") as flood:
        assert flood.stdout is not None and flood.stdout.readline() == b"full\n"
        asked = "[elastic_run.is_current_round() for _ in range(20)]"
        workers.do(0, f"import elastic_run; open({str(told)!r}, 'w').write(str(all({asked})))")
        flood.kill()
    assert told.read_text() == "True"
    workers.release()
    assert alone.finish() == {"A": 0}


LISTEN = """
import socket, sys

with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(f"\\0{sys.argv[1]}")
    listening.listen()
    print("listening", flush=True)
    accepted, _ = listening.accept()
    print(accepted.recv(100))
"""


def test_a_worker_says_nothing_to_another_user_who_listens_in_its_agents_place() -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("another user needs a Python of the system")
    name = f"test-{secrets.token_hex(8)}"
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python, "-c", LISTEN, name]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd="/") as listening:
        assert listening.stdout is not None and listening.stdout.readline() == b"listening\n"
        with pytest.raises(AgentGone, match="another user's process"):
            Channel(f"@{name}").ask(Call("saved", 1))
        assert listening.stdout.readline() == b"b''\n"


TAMPER = """
import socket, sys

for method, body in ((b"PUT", b"planted"), (b"GET", b"")):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as asking:
        try:
            head = b"%s /global/0 HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % (method, len(body))
            asking.sendall(head + body)
            while data := asking.recv(65536):
                print(data.decode())
        except OSError:
            pass
"""
"""Replaces an address that Horovod's workers exchange, and reads it."""


@pytest.mark.parametrize("protected", [False, True])
async def test_another_user_is_not_answered_where_horovods_workers_find_each_other(
    protected: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("another user needs a Python of the system")
    if not protected:
        monkeypatch.setattr(node_rendezvous, "is_own_peer", lambda _: True)
    rendezvous = NodeRendezvous()
    _, port = (await rendezvous.enter(Told(1, (1,), ("127.0.0.1",), 0, "127.0.0.1", 0))).split()
    own = partial(ask, "127.0.0.1", int(port))
    await own(Request("PUT", "/global/0", b"address"))
    done = await asyncio.to_thread(as_another, python, "-c", TAMPER, port)
    assert done.returncode == 0, done.stderr
    assert ("planted" in done.stdout) == (not protected)
    assert await own(Request("GET", "/global/0")) == (b"address" if protected else b"planted")
    shown = capsys.readouterr().out.count("a connection that is not of this user's process was closed unread")
    assert shown == protected, "once, and not for each"
    for worker in tuple(vars(rendezvous)["_workers"]):
        rendezvous.forget(worker)
    rendezvous.rounds[1].close()


def test_who_looks_for_jobs_here_says_nothing_to_another_user_who_listens_as_an_agent_does() -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("another user needs a Python of the system")
    name = f"elastic-run-{secrets.token_hex(16)}"

    async def look() -> None:
        for each in await local_jobs():  # of other tests, which run beside
            await each.close()

    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python, "-c", LISTEN, name]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd="/") as listening:
        assert listening.stdout is not None and listening.stdout.readline() == b"listening\n"
        asyncio.run(look())
        assert listening.stdout.readline() == b"b''\n"


def test_logs_are_for_this_user_alone(alone: Cluster, tmp_path: Path) -> None:
    alone.start("A", log_dir=str(tmp_path / "logs"))
    alone.workers(1).release()
    assert alone.finish() == {"A": 0}
    folder = (tmp_path / "logs" / "latest").resolve(strict=True)
    assert folder.stat().st_mode & 0o077 == 0
    for each in (tmp_path, tmp_path / "logs"):
        each.chmod(0o755)
    assert as_another("ls", str(folder)).returncode != 0


@pytest.mark.parametrize(
    "words",
    [
        ("closed/t.py",),
        ("--no-python", "closed/t"),
        ("--log-dir=closed/logs", "t.py"),
        ("--trace=closed/trace", "t.py"),
        ("--summary-json=closed/summary", "t.py"),
        ("--store-dir=closed/store", "t.py"),
        ("--join-file=closed/secret", "t.py"),
        ("--tls-cert=closed/a", "--tls-key=closed/b", "--tls-ca=closed/c", "t.py"),
        ("--etcd-cacert=closed/ca", "t.py"),
        ("--etcd-user=@closed/user", "t.py"),
        ("report", "closed/history"),
    ],
    ids=lambda words: words[0],
)
def test_what_lies_in_a_folder_that_this_user_may_not_enter_is_a_sentence(
    words: tuple[str, ...], elsewhere: Elsewhere
) -> None:
    own = ("--dry-run", "--nnodes=2", "--rdzv-endpoint=http://127.0.0.1:1") if words[0] != "report" else ()
    done = elsewhere("touch t.py", (*(() if own else words[:1]), *own, *words[0 if own else 1 :]), NOBODY)
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and "closed/" in line and "ermission denied" in line, done


def test_a_folder_of_path_that_this_user_may_not_enter_is_passed_over(elsewhere: Elsewhere) -> None:
    done = elsewhere("touch t.py", ("--dry-run", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:1", "t.py"), NOBODY)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


PLANTED = "raise SystemExit('planted')\n"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which every user may write, and has."""
    found = tmp_path / "shared"
    found.mkdir()
    found.chmod(0o1777)
    for name in ("argparse", "datetime", "elastic_run", "json", "torch"):
        (found / f"{name}.py").write_text(PLANTED)
    monkeypatch.chdir(found)
    return found


@pytest.mark.usefixtures("shared")
def test_modules_that_others_have_planted_in_the_working_folder_are_not_imported() -> None:
    command = [sys.executable, "-P", "-m", "elastic_run", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "planted" not in done.stdout + done.stderr and "workers' Python" in done.stdout, done
    outcome = asyncio.run(collective.run(sys.executable, collective.Place("127.0.0.1", 1, 1), os.environ, 3.0))
    assert outcome.problem and "planted" not in outcome.problem


@pytest.mark.parametrize("name", ["elastic-run.toml", "pyproject.toml"])
def test_flags_that_others_have_planted_in_the_working_folder_are_not_taken(name: str, shared: Path) -> None:
    planted = shared / name
    planted.write_text("insecure = true" if name == "elastic-run.toml" else "[tool.elastic-run]\ninsecure = true")
    wanted = scan(["t.py"], {})
    assert "insecure" in completed(wanted, shared)[0].given, "it is this user's own"
    os.chown(planted, NOBODY, NOBODY)
    scanned, [line] = completed(wanted, shared)
    assert not scanned.given and f"{name} is not used: {planted} belongs to another user (uid {NOBODY})" in line
    named = scan([f"--config={name}", "t.py"], {})
    assert "insecure" in completed(named, shared)[0].given
    shared.chmod(0o755)  # a colleague's project
    assert "insecure" in completed(wanted, shared)[0].given
    planted.chmod(0o666)
    assert not completed(wanted, shared)[0].given


@pytest.mark.parametrize("name", ["elastic-run.toml", "pyproject.toml"])
@pytest.mark.parametrize("what", ["pipe", "device", "file"])
def test_a_planted_configuration_is_not_even_opened(
    what: str, name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = shared / name
    if what == "pipe":
        os.mkfifo(planted)
    elif what == "device":
        planted.symlink_to("/dev/zero")
    else:
        planted.write_text("[tool.other]\n")
    os.chown(planted, NOBODY, NOBODY, follow_symlinks=False)
    opened: list[Path] = []
    really = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest: (opened.append(path), really(path, *rest))[1])
    scanned, lines = completed(scan(["t.py"], {}), shared)
    assert planted not in opened and not scanned.given and len(lines) == (what == "file" or name == "pyproject.toml")


OUTPUTS = {
    "--summary-json=NAME": "file",
    "--trace=NAME": "file",
    "--history=NAME": "folder",
    "--log-dir=NAME": "folder",
    "--log-dir=NAME/below": "folder",
    "report": "file",
    "report.html": "pipe",
    "a master's record": "file",
}


@pytest.mark.parametrize(("how", "kind"), OUTPUTS.items())
def test_an_output_does_not_go_where_another_users_link_leads(
    how: str, kind: str, shared: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    if kind == "folder":
        own.mkdir()
    else:
        own.write_text("[mine")
    planted = shared / "planted"
    link = Path("planted")
    if kind == "pipe":
        os.mkfifo(planted)
    else:
        planted.symlink_to(own)
    os.chown(planted, NOBODY, NOBODY, follow_symlinks=False)
    (shared / "t.py").write_text("")
    history = shared / f"job{SUFFIX}"
    history.write_bytes(line(Begun(1.0, "job", "A", "a", "t.py", "1", 1, "1")))
    said: list[str] = []
    match how:
        case "report" | "report.html":
            with pytest.raises(UsageError, match="belongs to another user"):
                report([str(history), "-o", str(link)])
        case "a master's record":
            History(link, said.append).close()
            assert "belongs to another user" in said[0]
        case _:
            words = [how.replace("NAME", str(link)), "t.py"]
            with pytest.raises(
                UsageError, match=r"is not used: \S+/planted belongs to another user .*: name another place"
            ):
                parse(words, {})
            os.chown(planted, 0, 0, follow_symlinks=False)
            assert parse(words, {}), "one's own link is followed"
    assert not list(own.iterdir()) if kind == "folder" else own.read_text() == "[mine"


SPY = """
import json, os, socket, sys

told = json.loads(sys.argv[1])
read = {"keys": "", "shown": "", "files": []}
for port in told["ports"]:
    body = json.dumps({"key": "AA==", "range_end": "AA=="})
    head = f"POST /v3/kv/range HTTP/1.0\\r\\nHost: localhost\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    with socket.create_connection(("127.0.0.1", port), 20) as asking:
        try:
            asking.sendall((head + body).encode())
            while data := asking.recv(65536):
                read["keys"] += data.decode("latin-1")
        except OSError:
            pass
for pid in told["pids"]:
    for name in ("cmdline", "environ", "maps"):
        try:
            with open(f"/proc/{pid}/{name}", encoding="latin-1") as file:
                read["shown"] += file.read()
        except OSError:
            pass
for root in told["folders"]:
    for folder, _, names in os.walk(root):
        read["files"] += [os.path.join(folder, name) for name in names]
print(json.dumps(read))
"""
"""Reads whatever it can: keys of the store, what /proc shows, names of files."""


@pytest.mark.parametrize("how", ["insecure", "secret"])
def test_another_user_reads_a_jobs_store_only_where_there_is_no_secret_and_never_its_files(
    how: str, embedded: Cluster, tmp_path: Path
) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("another user needs a Python of the system")
    secret = new_secret()
    if how == "insecure":
        embedded.start("A", "B", nnodes=2, insecure="", log_dir=str(tmp_path / "logs"))
    else:
        embedded.start("A", "B", nnodes=2, env={VARIABLE: secret.text}, log_dir=str(tmp_path / "logs"))
    workers = embedded.workers(2)
    temporary: Path = vars(embedded)["_temporary"]
    for each in (tmp_path, temporary):
        each.chmod(0o755)
    pids = embedded.processes()
    told = {
        "ports": [int(port) for port in listening(*pids)],
        "pids": pids,
        "folders": [str(temporary), str(tmp_path / "logs")],
    }
    assert len(told["ports"]) >= 4, "two agents, and a store's two ports"
    done = as_another(python, "-c", SPY, json.dumps(told))
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert ("kvs" in read["keys"]) == (how == "insecure")
    assert "elastic_run" in read["shown"], "the arguments of every process can be read by everybody"
    assert secret.text not in read["shown"] and VARIABLE not in read["shown"]
    assert not [name for name in read["files"] if "etcd" in name or "log" in name or name.endswith((".key", ".pem"))]
    workers.release()
    assert embedded.finish() == {"A": 0, "B": 0}
