"""Jobs with a parameter server: real workers, killed at each point of a push, and the server itself."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from .cluster import Cluster

SCRIPTS = Path(__file__).with_name("scripts")

SECONDS = 240.0
"""For a job, on a busy machine: fresh interpreters, and loops that are compiled for the first time."""


def run(folder: Path, *words: str, nproc: int = 3) -> tuple[int, str]:
    command = [sys.executable, "-m", "elastic_run", f"--nproc-per-node={nproc}", f"--log-dir={folder / 'logs'}", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, done.stdout + done.stderr


def script(folder: Path, text: str) -> str:
    (path := folder / "train.py").write_text(textwrap.dedent(text))
    return str(path)


@pytest.mark.parametrize("commit", ["ack", "checkpoint"])
def test_each_record_counts_once_whatever_worker_dies_at_whatever_point(tmp_path: Path, commit: str) -> None:
    deaths = ["1:3:before", "2:2:after", "3:4:done", "4:0:before", "5:0:after", "6:1:after"]
    words = (str(SCRIPTS / "servers_count.py"), f"--commit={commit}", "--die", *deaths)
    code, said = run(tmp_path, "--servers=1", "--max-restarts=6", "--same-failure-limit=0", *words)
    assert code == 0, said
    assert len(re.findall("dies (?:before|after|done) push", said)) == len(deaths), said
    assert "counted [2.0] 12000" in said


SLOW = (str(SCRIPTS / "servers_count.py"), "--pause=0.1")
"""Some 20 seconds; says what it has pushed."""


@pytest.mark.parametrize("servers", ["--servers=1", "--servers=2 --ps-replicas=0"])
def test_a_server_without_a_replica_that_is_lost_ends_the_job_once_with_the_reason(
    tmp_path: Path, servers: str
) -> None:
    code, said = run_and_kill(tmp_path, *servers.split(), "--max-restarts=9", *SLOW, after=("pushed 5",))
    assert code == 1
    assert said.count("died by SIGKILL") == 1 and "round 2" not in said
    assert re.search(
        r"failed: node \S+ cannot continue: parameter server \d on node \S+ has gone, and the only copy", said
    )


def test_a_server_with_a_replica_that_is_lost_is_not_felt(tmp_path: Path) -> None:
    code, said = run_and_kill(tmp_path, "--servers=2", *SLOW, after=("pushed 5", "have a second copy"))
    assert code == 0, said
    assert said.count("died by SIGKILL") == 2 and "counted [2.0] 12000" in said and "round 2" not in said


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_machine_that_is_lost_with_a_server_and_the_master_costs_no_record(job: Cluster, fault: str) -> None:
    job.start("A", "B", "C", nnodes="2:3", servers="2:3", script=SCRIPTS / "servers_count.py", args=("--pause=0.1",))
    job.wait_anywhere("pushed 20")
    lost = job.master()
    (job.kill_machine if fault == "killed" else job.freeze_machine)(lost)
    _, found = job.wait_anywhere(r"counted (.*)")
    if fault == "frozen":
        job.kill_machine(lost)
    others = {node: 0 for node in "ABC" if node != lost}
    assert job.finish() == others and found[1] == "[2.0] 12000"


def test_a_node_that_leaves_gives_its_rows_to_the_others_also_where_nobody_has_a_copy(job: Cluster) -> None:
    flags = {"nnodes": "2:3", "servers": "2:3", "ps_replicas": 0}
    job.start("A", "B", "C", script=SCRIPTS / "servers_count.py", args=("--pause=0.1",), **flags)
    job.wait_anywhere("pushed 20")
    leaves = next(node for node in "ABC" if node != job.master())
    job.send(leaves, signal.SIGTERM)
    _, found = job.wait_anywhere(r"counted (.*)")
    assert job.finish() == {node: 143 if node == leaves else 0 for node in "ABC"} and found[1] == "[2.0] 12000"


def run_and_kill(folder: Path, *words: str, after: tuple[str, ...]) -> tuple[int, str]:
    """Runs a job of two workers, and kills a server when each of these words has been said."""
    command = [sys.executable, "-m", "elastic_run", "--nproc-per-node=2", f"--log-dir={folder / 'logs'}", *words]
    lines, left = list[str](), list(after)
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            lines.append(line)
            if left and left[0] in line:
                del left[0]
                os.kill(children_with("adapters.servers.server", job.pid)[0], signal.SIGKILL)
        return job.wait(SECONDS), "".join(lines)


def children_with(words: str, parent: int) -> list[int]:
    found: list[int] = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            line, status = (each / "cmdline").read_bytes(), (each / "status").read_text()
        except OSError:
            continue
        if words.encode() in line and f"PPid:\t{parent}\n" in status:
            found.append(int(each.name))
    return found


def test_a_model_trains_as_with_an_embedding_bag_of_its_own(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        "--servers=1",
        script(
            tmp_path,
            """
            import torch
            from elastic_run import data, servers
            from elastic_run import torch as elastic
            torch.manual_seed(0)
            made = elastic.Embedding("t", 8, servers.Adagrad(0.1), servers.Uniform(-0.5, 0.5), mode="mean")
            own = torch.nn.EmbeddingBag(100, 8, mode="mean")
            own.weight.data.copy_(made.rows(torch.arange(100)))
            dense = [torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)]
            dense[1].load_state_dict(dense[0].state_dict())
            steps = [torch.optim.Adagrad(dense[0].parameters(), 0.1),
                     torch.optim.Adagrad([*dense[1].parameters(), *own.parameters()], 0.1)]
            for shard in data.shards("d", 640, shard_size=64, commit="ack"):
                ids, offsets = torch.randint(0, 100, (256,)), torch.arange(0, 256, 4)
                wanted = torch.randn(64, 1)
                for rows, layer, step in zip((made, own), dense, steps):
                    step.zero_grad()
                    ((layer(rows(ids, offsets)) - wanted) ** 2).mean().backward()
                    step.step()
                shard.done()
            difference = (made.rows(torch.arange(100)) - own.weight.detach()).abs().max().item()
            print("difference", difference, difference < 1e-5)
            made.eval()
            with torch.no_grad():
                assert made(torch.zeros(2, 3, dtype=torch.int64)).shape == (2, 3, 8)
            assert made(torch.zeros(2, 3, dtype=torch.int64)).requires_grad is False
            """,
        ),
        nproc=1,
    )
    assert code == 0, said
    assert re.search(r"difference \S+ True", said), said


def test_tables_of_strings_and_of_a_size_have_the_rows_that_they_are_to_have(tmp_path: Path) -> None:
    text = """
        import torch
        from elastic_run import data, servers
        from elastic_run import torch as elastic
        made = servers.SGD(1.0), servers.Zeros()
        users = elastic.Embedding("users", 1, *made, dtype=torch.bfloat16, admit_after=2)
        items = elastic.Embedding("items", 1, *made, evict=servers.LeastFrequent(rows=1024))
        for shard in data.shards("d", 3000, shard_size=50, commit="ack"):
            names = [f"user {index % 100}" for index in shard.indices]
            indices = torch.tensor(list(shard.indices))
            (-users(names).float().sum() - items(torch.cat([indices, torch.tensor([-1])])).sum()).backward()
            shard.done()
        counted = users.rows([f"user {number}" for number in range(100)])
        print("users", counted.dtype, set(counted.flatten().tolist()))
        there = items.rows(torch.arange(3000)).flatten()
        print("items", set(there.tolist()), 512 < there.sum() <= 1024, items.rows(torch.tensor([-1])).item())
        print(users)
        """
    code, said = run(tmp_path, "--servers=2", script(tmp_path, text), nproc=1)
    assert code == 0, said
    assert "users torch.bfloat16 {29.0}" in said  # of 30: the first was in a row that others shared
    assert "items {0.0, 1.0} tensor(True) " in said
    assert "strings as 64-bit hashes (probability that two of so many are the same: 1e+06: 3e-08" in said


def test_what_a_script_does_wrong_is_said(tmp_path: Path) -> None:
    text = """
        import torch
        from elastic_run import data, exceptions, servers
        from elastic_run import torch as elastic
        table = elastic.Embedding("t", 2, servers.SGD(1.0), servers.Zeros())
        dense = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(dense.parameters(), 0.1)
        dense(table(torch.arange(4))).sum().backward()
        optimizer.step()
        shards = data.shards("d", 100, shard_size=10, commit="ack")
        next(shards)
        for wrong in (
            lambda: optimizer.step(),
            lambda: table(torch.zeros(3)),
            lambda: elastic.Embedding("t", 3, servers.SGD(1.0)),
            lambda: elastic.Embedding("t", 2, servers.SGD(-1.0)),
            lambda: elastic.Embedding("u", 2, servers.SGD(1.0), mode="max"),
            lambda: next(shards),
        ):
            try:
                wrong()
                print("nothing is said")
            except (exceptions.TableMisused, exceptions.ShardsMisused) as error:
                print("said:", error)
        """
    code, said = run(tmp_path, "--servers=1", script(tmp_path, text), nproc=1)
    assert code == 0, said
    words = (
        "call shard.progress(n) or shard.done() after each step",
        "ids are torch.float32, and must be torch.int64",
        "table 't' is there already, with columns 2 in place of 3",
        "SGD(lr=-1.0) must be at least 0",
        "mode='max' must be sum or mean",
        "Call done() of a shard before the next",
    )
    lines = re.findall("said: (.*)", said)
    assert len(lines) == len(words), said
    assert [word for word, line in zip(words, lines, strict=True) if word not in line] == []


def test_a_table_in_a_job_without_servers_is_refused(tmp_path: Path) -> None:
    text = """
        from elastic_run import servers
        from elastic_run import torch as elastic
        elastic.Embedding("t", 2, servers.SGD(1.0))
        """
    code, said = run(tmp_path, "--max-restarts=0", script(tmp_path, text), nproc=1)
    assert code == 1
    assert "this job has no servers for its tables: start it with elastic-run --servers=1" in said
