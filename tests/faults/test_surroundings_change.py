"""What changes around a running job: its disk, its clock, its address, its names, its store. Each ends in recovery."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import elastic_run
from elastic_run.rendezvous.identity.secret import VARIABLE, new_secret

from ..integration.cluster import DEADLINE, Cluster, embedded_ports, failure
from ..integration.conftest import Cluster as Etcd
from ..integration.conftest import running
from .clocks import HOUR, JumpingClock
from .disks import fill, fill_with_names
from .name_server import NameServer
from .network import Founders, Net, Unavailable


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd of one member."""
    with running(Etcd(tmp_path / "etcd", 1)) as etcd:
        yield etcd


@pytest.fixture
def puppets(tmp_path: Path, store: Etcd, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A job on it."""
    with Cluster(tmp_path / "job", store.endpoint, failure(request)) as made:
        yield made


@pytest.fixture
def founded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A job that starts its own store."""
    endpoint = f"127.0.0.1:{embedded_ports(1)[0]}"
    with Cluster(tmp_path / "job", endpoint, failure(request), embedded=True) as made:
        yield made


# -- disks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_job_goes_into_its_next_round_where_its_temporary_folder_takes_nothing_more(
    how: str, puppets: Cluster, small_disk: Path
) -> None:
    puppets.start("A", "B", nnodes=2, env={"TMPDIR": str(small_disk), "HOME": str(small_disk)})
    puppets.workers(2)
    if how == "full":
        fill(small_disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    puppets.kill_worker(1)
    puppets.workers(2).release()
    assert puppets.finish() == {"A": 0, "B": 0}
    for node in "AB":
        assert "Traceback" not in puppets.log(node)


ROOT = Path(__file__).parents[2]


def finding_no_other_folder(disk: Path) -> list[str]:
    """Words before a command, which then finds no folder for temporary files but `disk`, and Python where it was.

    `disk` is mounted over the folders for temporary files, and on it again what lies there of this clone and of Python.
    """
    places = [Path("/tmp"), Path("/var/tmp")]
    needed = [Path(sys.prefix), Path(sys.base_prefix), Path(elastic_run.__file__).parents[2], ROOT]
    held = {folder: place for folder in needed for place in places if folder.is_relative_to(place)}
    before, after = ["set -e", "mount -t tmpfs tmpfs /mnt"], []
    for number, (folder, place) in enumerate(held.items()):
        (disk / folder.relative_to(place)).mkdir(parents=True, exist_ok=True)
        before += [f"mkdir /mnt/{number}", f"mount --rbind {shlex.quote(str(folder))} /mnt/{number}"]
        after.append(f"mount --rbind /mnt/{number} {shlex.quote(str(folder))}")
    over = [f"mount --bind {shlex.quote(str(disk))} {place}" for place in reversed(places)]
    return ["unshare", "--mount", "sh", "-c", "\n".join([*before, *over, *after, "cd /tmp", 'exec "$@"']), "sh"]


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_job_that_finds_no_room_for_its_files_is_refused_in_one_sentence(how: str, small_disk: Path) -> None:
    within = finding_no_other_folder(small_disk)
    if how == "full":
        fill_with_names(small_disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    command = [sys.executable, "-m", "elastic_run", "--standalone", "--no-python", "/bin/true"]
    env = {**os.environ, "TMPDIR": "/tmp", "HOME": "/tmp"}
    done = subprocess.run([*within, *command], env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert "cannot create a folder for the logs" in line and "make room there, or name another with --log-dir" in line


# -- processes and threads --------------------------------------------------------------------------------------------

ASKS = """
import asyncio, sys
from elastic_run.rendezvous.base.errors import NoThreads
from elastic_run.rendezvous.store.etcd import connections
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore

if sys.argv[2:]:
    connections.check_threads = lambda _: None

async def main():
    store = EtcdStore([sys.argv[1]])
    try:
        await store.get("/x")
        print("asked")
    except NoThreads as error:
        print(error)
    finally:
        await store.close()

asyncio.run(main())
"""

ANOTHER = 61_717
"""A user without processes: the limit counts all that one has."""


@pytest.mark.parametrize("limit", [2, 8, 12])
def test_a_limit_of_processes_that_is_too_low_for_the_store_is_a_sentence_and_no_crash(limit: int, store: Etcd) -> None:
    if os.geteuid() != 0:
        pytest.skip("no root: no process of another user can be started")
    caps = "+dac_override,+dac_read_search"  # for an interpreter in root's own folder
    another = [*("setpriv", f"--reuid={ANOTHER}", f"--regid={ANOTHER}", "--clear-groups"), f"--inh-caps={caps}"]
    another += [f"--ambient-caps={caps}", "prlimit", f"--nproc={limit}", sys.executable, "-c", ASKS, store.endpoint]

    def run(*more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*another, *more], capture_output=True, text=True, timeout=DEADLINE, check=False)

    done = run()
    assert done.returncode == 0, done
    assert "more threads can be started here, and asking the store takes" in done.stdout
    assert "ulimit -u" in done.stdout
    if limit == 2:  # where that is not looked for, grpc ends the process
        assert run("unchecked").returncode < 0


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_limit_of_memory_that_is_too_low_to_begin_is_a_sentence() -> None:
    refused: list[str] = []
    for kilobytes in range(25_000, 60_000, 5_000):
        limited = ["prlimit", f"--as={kilobytes * 1024}", sys.executable, "-m", "elastic_run", "--standalone"]
        command = [*limited, "--no-python", "/bin/true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
        refused += [done.stderr] if done.returncode else []
    assert refused, "how much it takes is Python's matter, but the least of these is too little"
    for said in refused:
        assert "(ulimit -v" in said and "Traceback" not in said, said


def test_what_python_says_of_a_library_that_finds_no_room_is_a_sentence_too() -> None:
    fails = "from elastic_run.launcher import cli\ndef main(): raise ImportError('x.so: no room')\n"
    fails += "cli.main = main\ncli.run()"
    for limit, code, said in (
        (
            ["prlimit", f"--as={200 << 20}"],
            2,
            "there is not enough memory here (ImportError: x.so: no room): raise its limit",
        ),
        ([], 1, "Traceback"),
    ):
        command = [*limit, sys.executable, "-c", fails]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == code and said in done.stderr, done


def test_an_etcd_that_may_not_have_the_addresses_that_it_reserves_is_a_sentence(founded: Cluster) -> None:
    founded.start("A", nnodes="1:2", prefix=("prlimit", f"--as={800 << 20}"))
    founded.wait_for_line("A", r"a process may have 800 MiB of addresses here.*raise that limit \(ulimit -v\)")
    assert founded.finish() == {"A": 2}


def test_an_etcd_that_may_open_too_few_files_is_a_sentence_and_a_soft_limit_stops_none(
    founded: Cluster, tmp_path: Path
) -> None:
    # etcd itself says so only in its log, of which the advice was that its data is damaged.
    founded.start("A", nnodes="1:2", prefix=("prlimit", "--nofile=64"))
    founded.wait_for_line("A", r"may open 64 files here, and the etcd .* needs 192: run ulimit -n 192 first")
    assert founded.finish() == {"A": 2}
    member = [
        *(sys.executable, "-m", "elastic_run", "store", "--insecure", "--listen=127.0.0.1"),
        f"--store-dir={tmp_path / 'store'}",
    ]
    [port] = embedded_ports(1)
    ready = tmp_path / "ready"
    member += [f"--rdzv-endpoint=127.0.0.1:{port}", f"--member=127.0.0.1:{port}", f"--ready-file={ready}"]
    store = subprocess.Popen(["prlimit", "--nofile=64:4096", *member])
    try:
        until = time.monotonic() + 60
        while not ready.exists() and store.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert ready.exists(), "the soft limit is raised for it"
    finally:
        store.terminate()
        store.wait(60)


# -- clocks -----------------------------------------------------------------------------------------------------------


def test_clocks_jump_by_an_hour_while_a_job_with_a_secret_runs_its_own_store(founded: Cluster, tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path)
    known = {VARIABLE: new_secret().text}
    founded.start("A", "B", nnodes="1:3", env={**clock.env, **known}, conf={"last_call_timeout": 0, "lease_ttl": 5})
    founded.workers(2)
    for jump, newcomer in ((HOUR, ""), (-HOUR, "C")):
        clock.jump(jump)
        jumped = time.monotonic()
        founded.kill_worker(1)  # new connections are made, and new workers
        founded.workers(2)
        if newcomer:
            founded.start(newcomer, env=known)  # its clock is right, and the others' are an hour behind
            last = founded.workers(3)
            # A lease that nobody renews after the jump ends within this time.
            time.sleep(max(0.0, jumped + founded.conf["lease_ttl"] + 1 - time.monotonic()))
            last.release()
    assert founded.finish() == dict.fromkeys("ABC", 0)
    for node in "ABC":
        assert not re.search("was lost|lease expired|Traceback", founded.log(node))


# -- the store --------------------------------------------------------------------------------------------------------


def etcdctl(store: Etcd, *words: str, says: str = "") -> str:
    """What etcd's own client prints, which reads `says`."""
    command = [Path(sys.executable).with_name("etcdctl"), f"--endpoints={store.endpoint}", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, input=says).stdout


def test_a_stores_space_alarm_holds_up_the_next_round_until_it_is_disarmed(puppets: Cluster, store: Etcd) -> None:
    member = store.members[0]
    member.kill()
    member.options = ["--quota-backend-bytes=2000000"]
    member.start()
    puppets.start("A", "B", nnodes=2)
    puppets.workers(2)
    with contextlib.suppress(subprocess.CalledProcessError):
        for _ in range(10):
            etcdctl(store, "put", "other", says="x" * 500_000)
    assert "NOSPACE" in etcdctl(store, "alarm", "list")
    puppets.kill_worker(1)
    puppets.wait_anywhere("space")
    revision = json.loads(etcdctl(store, "endpoint", "status", "--write-out=json"))[0]["Status"]["header"]["revision"]
    etcdctl(store, "compact", str(revision))
    etcdctl(store, "defrag")
    etcdctl(store, "alarm", "disarm")
    puppets.workers(2).release()
    assert puppets.finish() == {"A": 0, "B": 0}


def test_a_store_that_was_compacted_while_an_agent_was_stopped_tells_it_where_the_job_is(
    puppets: Cluster, store: Etcd
) -> None:
    puppets.start("A", "B", nnodes="1:2", conf={"lease_ttl": 60})
    workers = puppets.workers(2)
    master = puppets.master()
    stopped = "B" if master == "A" else "A"
    puppets.send(stopped, signal.SIGSTOP)
    for _ in range(3):
        etcdctl(store, "put", "other", "x")
    revision = json.loads(etcdctl(store, "endpoint", "status", "--write-out=json"))[0]["Status"]["header"]["revision"]
    puppets.kill_worker(workers.nodes.index(master))
    etcdctl(store, "compact", str(revision))
    puppets.send(stopped, signal.SIGCONT)
    puppets.workers(2).release()
    assert puppets.finish() == {"A": 0, "B": 0}


# -- addresses and names ----------------------------------------------------------------------------------------------


def test_a_node_that_loses_its_address_leaves_with_a_sentence_and_comes_back_under_another(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with contextlib.ExitStack() as stack:
        try:
            net = stack.enter_context(Net("A", "B"))
        except Unavailable as reason:
            pytest.skip(f"no network can be made on this machine: {reason}")
        job = stack.enter_context(Founders(tmp_path / "job", net, ("A",), failure(request)))
        job.boot("A", "B", nnodes="1:2")
        job.workers(2)
        old = net.address("B")
        net.move("B")
        job.wait_for_line("B", f"this machine no longer has the address {old}")
        job.workers(1)
        job.wait_until(lambda: job.nodes["B"].ended or None, "B ends")
        assert job.nodes["B"].process.wait() == 1
        job.boot("B")
        job.workers(2).release()
        assert job.finish() == {"A": 0, "B": 0}


def test_a_job_runs_where_there_is_only_ipv6(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with contextlib.ExitStack() as stack:
        try:
            net = stack.enter_context(Net("A", "B", version=6))
        except Unavailable as reason:
            pytest.skip(f"no network can be made on this machine: {reason}")
        job = stack.enter_context(Founders(tmp_path / "job", net, ("A",), failure(request)))
        job.boot("A", "B", nnodes="1:2")
        workers = job.workers(2)
        assert {worker.env["MASTER_ADDR"] for worker in workers} == {net.address(workers[0].node)}
        job.kill_machine("B")
        job.workers(1).release()
        assert job.finish() == {"A": 0}


MEETS = """
import os, socket
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(where, family=socket.AF_INET6) as server:
        server.accept()
else:
    while True:
        try:
            socket.create_connection(where)
            break
        except ConnectionRefusedError:
            pass
print("met at", where[0])
"""
"""Rank 1 reaches rank 0."""

WITHOUT_IPV4 = """
ip link set lo up && ip address delete 127.0.0.1/8 dev lo && mount --bind "$1" /etc/hosts || exit 77
case "$2" in *route*) ip address add fd00::1/64 dev lo;; esac
shift 2
"$@" --node-name=a train.py & first=$!
"$@" --node-name=b train.py && wait $first
"""


@pytest.mark.parametrize("host", ["", "six", "localhost", socket.gethostname(), f"{socket.gethostname()} with a route"])
def test_a_name_may_mean_only_the_loopback_of_ipv6_where_there_is_no_other(host: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MEETS)
    (tmp_path / "hosts").write_text(f"::1 localhost six {socket.gethostname()}\n")
    flags = ["--standalone", "--nproc-per-node=2", "--dashboard"]
    if host:
        [port] = embedded_ports(1)
        flags = ["--nnodes=2", "--nproc-per-node=1", f"--rdzv-endpoint={host.partition(' ')[0]}:{port}"]
    apart = ("unshare", "--net", "--mount", "sh", "-c", WITHOUT_IPV4, "sh", str(tmp_path / "hosts"), host)
    done = subprocess.run(
        [*apart, sys.executable, "-m", "elastic_run", *flags],
        cwd=tmp_path,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "Operation not permitted" in done.stderr or done.returncode in (77, 127):
        pytest.skip(f"no network can be made on this machine: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("met at fd00::1" if "route" in host else "met at ::1") == (2 if host else 4), done.stdout
    assert done.stderr.count("dashboard: http://[::1]:") == (0 if host else 2), done.stderr


@pytest.fixture
def names(tmp_path: Path) -> Iterator[NameServer]:
    """A name server that knows the store's host."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(NameServer({"store.test": "127.0.0.1"}, tmp_path))
        except Unavailable as reason:
            pytest.skip(f"no name server can be played on this machine: {reason}")
        yield made


def test_a_name_that_is_answered_late_delays_a_job_and_no_more(
    names: NameServer, store: Etcd, puppets: Cluster
) -> None:
    port = store.endpoint.rpartition(":")[2]
    names.delay = 1.5
    puppets.start("A", "B", nnodes=2, rdzv_endpoint=f"http://store.test:{port}", prefix=names.prefix)
    puppets.workers(2)
    puppets.kill_worker(0)
    puppets.workers(2).release()
    assert puppets.finish() == {"A": 0, "B": 0}
    assert names.asked


def test_a_store_that_moves_is_found_where_its_name_leads_now(names: NameServer, store: Etcd, puppets: Cluster) -> None:
    (member,) = store.members
    host, _, port = member.endpoint.rpartition(":")
    names.hosts["store.test"] = host
    puppets.start("A", "B", nnodes="1:2", rdzv_endpoint=f"http://store.test:{port}", prefix=names.prefix)
    puppets.workers(2)
    member.kill()
    names.hosts["store.test"] = "127.0.0.9"
    member.endpoint = f"127.0.0.9:{port}"
    member.start()
    for node in "AB":
        puppets.wait_for_line(node, "the store answers again")
    puppets.kill_worker(0)
    puppets.workers(2).release()
    assert puppets.finish() == {"A": 0, "B": 0}


def test_a_name_that_leads_nowhere_is_refused_at_the_deadline_in_one_sentence(
    names: NameServer, puppets: Cluster
) -> None:
    puppets.start(
        "A", nnodes=2, rdzv_endpoint="http://nowhere.test:2379", prefix=names.prefix, conf={"join_timeout": 3}
    )
    puppets.wait_for_line("A", "nowhere.test:2379")
    assert puppets.nodes["A"].process.wait(DEADLINE) == 3
    assert "Traceback" not in puppets.log("A")
