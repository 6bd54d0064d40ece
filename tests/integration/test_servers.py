"""Jobs with a parameter server: real workers, killed at each point of a push, and the server itself."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .cluster import Cluster
from .server_jobs import AHEAD, SECONDS, find_children, run, script

SCRIPTS = Path(__file__).with_name("scripts")


@pytest.mark.parametrize("commit", ["ack", "checkpoint"])
def test_each_record_counts_once_whatever_worker_dies_at_whatever_point(tmp_path: Path, commit: str) -> None:
    deaths = ["1:3:before", "2:2:after", "3:4:done", "4:0:before", "5:0:after", "6:1:after"]
    words = (str(SCRIPTS / "servers_count.py"), f"--commit={commit}", "--die", *deaths)
    code, said = run(tmp_path, "--servers=1", "--max-restarts=6", "--same-failure-limit=0", AHEAD, *words)
    assert code == 0, said
    assert len(re.findall("dies (?:before|after|done) push", said)) == len(deaths), said
    assert "counted [2.0] 12000" in said


@pytest.mark.parametrize("commit", ["ack", "checkpoint"])
def test_each_record_of_a_loader_counts_once_whatever_worker_dies(tmp_path: Path, commit: str) -> None:
    deaths = ["1:3:before", "2:2:after", "3:4:before"]
    words = (str(SCRIPTS / "servers_count.py"), f"--commit={commit}", "--loader=2", "--die", *deaths)
    code, said = run(tmp_path, "--servers=2", "--max-restarts=3", "--same-failure-limit=0", AHEAD, *words)
    assert code == 0, said
    assert len(re.findall("dies (?:before|after) push", said)) == len(deaths), said
    assert "counted [2.0] 12000" in said


def test_a_worker_that_ends_itself_with_a_shard_begun_leaves_its_rest_to_the_others(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--servers=1", AHEAD, str(SCRIPTS / "servers_count.py"), "--die", "1:2:exit")
    assert code == 0, said
    assert "dies exit push" in said and "round 2" not in said
    assert "counted [2.0] 12000" in said


def test_a_job_whose_last_worker_ends_itself_with_a_shard_begun_is_no_success(tmp_path: Path) -> None:
    text = """
        import os
        from elastic_run import data, servers
        servers.Table("t", 1, servers.SGD(1.0), servers.Zeros())
        for count, shard in enumerate(data.shards("d", 1000, shard_size=100, epochs=1)):
            if count == 4:
                os._exit(0)
            shard.done()
        """
    code, said = run(tmp_path, "--servers=1", script(tmp_path, text), nproc=1)
    assert code == 1, said
    assert re.search("every worker ended with exit code 0, and one of them left shard [34] of dataset 'd' begun", said)


def test_a_position_that_is_newer_than_the_rows_leaves_no_record_out(tmp_path: Path) -> None:
    text = """
        import json, os, torch
        from elastic_run import data, servers
        from elastic_run import torch as elastic
        table = elastic.Embedding("t", 1, servers.SGD(1.0), servers.Zeros())
        shards = data.shards("d", 1000, shard_size=100, epochs=1)
        if os.path.exists("position"):
            shards.load_state_dict(json.load(open("position")))
        for count, shard in enumerate(shards):
            (-table(torch.tensor(list(shard.indices))).sum()).backward()
            shard.done()
            if count == 4 and not os.path.exists("position"):
                json.dump(shards.state_dict(), open("position", "w"))
                raise SystemExit
        print("counted", sorted(set(table.rows(torch.arange(1000)).flatten().tolist())), flush=True)
        """
    path = script(tmp_path, text)
    code, said = run(tmp_path, "--servers=1", path, nproc=1)
    assert code == 0 and (tmp_path / "position").exists(), said
    code, said = run(tmp_path, "--servers=1", path, nproc=1)  # whose tables are new
    assert code == 0, said
    assert "counted [1.0]" in said
    assert "goes on from what the rows of its tables have, and not from the position that was loaded" in said


def test_each_record_counts_once_with_numpy(tmp_path: Path) -> None:
    words = (str(SCRIPTS / "servers_count.py"), "--by=numpy", "--die", "1:3:before", "2:2:after")
    code, said = run(tmp_path, "--servers=1", "--max-restarts=2", "--same-failure-limit=0", *words, nproc=2)
    assert code == 0, said
    assert len(re.findall("dies (?:before|after) push", said)) == 2, said
    assert "counted [2.0] 12000" in said


def test_each_record_counts_once_in_keras_fit_though_a_worker_dies_in_the_middle_of_it(tmp_path: Path) -> None:
    words = (str(SCRIPTS / "servers_fit.py"), "--dies-before=7")
    code, said = run(tmp_path, "--servers=1", "--max-restarts=1", *words, nproc=1)  # each imports TensorFlow anew
    assert code == 0, said
    assert said.count("dies before batch 7") == 1 and "counted [2.0] 4000" in said, said


SLOW = (str(SCRIPTS / "servers_count.py"), "--pause=0.1")
"""Some 20 seconds, until the test has seen what it waited for; says what it has pushed."""


@pytest.mark.parametrize("servers", ["--servers=1", "--servers=2 --ps-replicas=0"])
def test_a_server_without_a_replica_that_is_lost_ends_the_job_once_with_the_reason(
    tmp_path: Path, servers: str
) -> None:
    code, said = run_and_kill(tmp_path, *servers.split(), "--max-restarts=9", AHEAD, *SLOW, after=("pushed 5",))
    assert code == 1
    assert said.count("died by SIGKILL") == 1 and "round 2" not in said
    assert re.search(
        r"failed: node \S+ cannot continue: parameter server \d on node \S+ has gone, and the only copy", said
    )


def test_the_only_server_that_is_killed_again_and_again_goes_on_with_its_log(tmp_path: Path) -> None:
    after = ("pushed 5", "goes on with its log", "goes on with its log")
    words = ("--servers=1", f"--ps-log={tmp_path / 'log'}", "--max-restarts=0", *SLOW)
    code, said = run_and_kill(tmp_path, *words, after=after)
    assert code == 0, said
    assert said.count("died by SIGKILL") == 3 and "counted [2.0] 12000" in said and "round 2" not in said
    assert not list((tmp_path / "log").iterdir())


def test_a_server_with_a_replica_that_is_lost_is_not_felt(tmp_path: Path) -> None:
    code, said = run_and_kill(tmp_path, "--servers=2", AHEAD, *SLOW, after=("pushed 5", "have a second copy"))
    assert code == 0, said
    assert said.count("died by SIGKILL") == 2 and "counted [2.0] 12000" in said and "round 2" not in said


def test_a_table_twenty_times_as_large_as_its_memory_counts_each_record_though_servers_are_killed(
    tmp_path: Path,
) -> None:
    text = """
        import os, time
        import numpy as np
        from elastic_run import data, servers
        table = servers.Table("t", 1024, servers.SGD(1.0), servers.Zeros())
        for count, shard in enumerate(data.shards("d", 3000, shard_size=60, epochs=2, commit="ack")):
            ids = np.array(list(shard.indices))
            table.push(ids, np.full((len(ids), 1024), -1.0, np.float32))
            shard.done()
            print("pushed", count, flush=True)
            while count >= 20 and not os.path.exists("hurry"):  # until the test has seen what it waits for
                print("pushed", count, flush=True)
                time.sleep(0.1)
        print("counted", sorted(set(table.rows(np.arange(3000)).ravel().tolist())), flush=True)
        """
    disk = ("--ps-memory=600K", f"--ps-disk={tmp_path / 'rows'}:64M")
    words = ("--servers=2", *disk, script(tmp_path, text))
    code, said = run_and_kill(tmp_path, *words, after=("pushed 20", "have a second copy"))
    assert code == 0, said
    assert said.count("died by SIGKILL") == 2 and said.count("counted [2.0]") == 2 and "round 2" not in said, said
    assert list((tmp_path / "rows").iterdir()) == []


def test_each_record_counts_once_in_a_model_on_servers_though_workers_and_servers_die(tmp_path: Path) -> None:
    deaths = ("--die", "1:3:before", "2:2:after")
    flags = ("--servers=2", "--max-restarts=2", "--same-failure-limit=0", f"{AHEAD},torch._dynamo")
    code, said = run_and_kill(tmp_path, *flags, *SLOW, "--by=dense", *deaths, after=("pushed 5", "have a second copy"))
    assert code == 0, said
    assert len(re.findall("dies (?:before|after) push", said)) == 2, said
    assert "counted [12000.0] 12000" in said, said


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_machine_that_is_lost_with_a_server_and_the_master_costs_no_record(job: Cluster, fault: str) -> None:
    job.start(
        "A",
        "B",
        "C",
        nnodes="2:3",
        servers="2:3",
        script=SCRIPTS / "servers_count.py",
        args=("--pause=0.1", "--by=numpy"),
    )
    job.wait_anywhere("pushed 20")
    lost = job.master()
    (job.kill_machine if fault == "killed" else job.freeze_machine)(lost)
    job.wait_anywhere(r"round 2: 3 -> 2 nodes")
    (job.directory / "hurry").touch()
    _, found = job.wait_anywhere(r"counted (.*)")
    if fault == "frozen":
        job.kill_machine(lost)
    others = {node: 0 for node in "ABC" if node != lost}
    assert job.finish() == others and found[1] == "[2.0] 12000"


def test_a_node_that_leaves_gives_its_rows_to_the_others_also_where_nobody_has_a_copy(job: Cluster) -> None:
    flags = {"nnodes": "2:3", "servers": "2:3", "ps_replicas": 0}
    job.start("A", "B", "C", script=SCRIPTS / "servers_count.py", args=("--pause=0.1", "--by=numpy"), **flags)
    job.wait_anywhere("pushed 20")
    leaves = next(node for node in "ABC" if node != job.master())
    job.send(leaves, signal.SIGTERM)
    job.wait_anywhere(r"round 2: 3 -> 2 nodes")
    (job.directory / "hurry").touch()
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
                os.kill(find_children("adapters.servers.server", job.pid)[0], signal.SIGKILL)
            elif not left and "pushed" in line:  # it goes on after the last loss
                (folder / "hurry").touch()
        return job.wait(SECONDS), "".join(lines)


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


def test_a_keras_model_trains_as_with_an_embedding_of_keras(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        "--servers=1",
        script(
            tmp_path,
            """
            import keras, numpy, tensorflow as tf
            from elastic_run import data, servers
            from elastic_run import tensorflow as elastic
            keras.utils.set_random_seed(0)
            layers, optimizers = keras.layers, keras.optimizers
            random, everything = numpy.random.default_rng(0), numpy.arange(200)
            pairs = (
                ("SGD", servers.SGD(0.1), lambda: optimizers.SGD(0.1)),
                ("Adagrad", servers.Adagrad(0.1, eps=1e-7, initial_accumulator_value=0.1),
                 lambda: optimizers.Adagrad(0.1)),
            )
            models, tables = [], []
            for name, rows, dense in pairs:
                made = elastic.Embedding(name, 8, rows, servers.Uniform(-0.5, 0.5))
                own = layers.Embedding(200, 8)
                own.build(())
                own.set_weights([first := made.rows(everything).numpy()])
                ids = keras.Input((4,), dtype="int64")
                both = [keras.Model(ids, layers.Dense(1)(layers.Flatten()(each(ids)))) for each in (made, own)]
                for model in both:
                    model.compile(optimizer=dense(), loss="mse")
                both[1].layers[-1].set_weights(both[0].layers[-1].get_weights())
                models += both
                tables.append((name, first, made, own))
            for shard in data.shards("d", 1280, shard_size=128, commit="ack"):
                for begin in range(0, 128, 32):
                    # An id once in a batch: of several gradients Keras squares each, and a server their sum, as torch.
                    ids, wanted = random.permutation(200)[:128].reshape(32, 4), random.standard_normal((32, 1))
                    for model in models:
                        model.train_on_batch(ids, wanted)
                    shard.progress(begin + 32)
                shard.done()
            for name, first, made, own in tables:
                rows = made.rows(everything).numpy()
                apart = abs(rows - own.get_weights()[0]).max()
                print("difference", name, apart, apart < 1e-5, abs(rows - first).max() > 0.005)
            """,
        ),
        nproc=1,
    )
    assert code == 0, said
    assert len(re.findall(r"difference \w+ \S+ True True", said)) == 2, said


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
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(dense(torch.ones(2)).sum()).backward()
        for wrong in (
            lambda: scaler.step(optimizer),
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
        "a GradScaler scales the loss, and so the gradients of tables",
        "call shard.progress(n), shard.done() or loader.commit(), or commit() of an ElasticBatchSampler",
        "ids are torch.float32, and must be torch.int64",
        "table 't' is there already, with columns 2 in place of 3",
        "SGD(lr=-1.0) must be above 0",
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
