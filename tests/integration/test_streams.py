"""A job whose workers use a stream, while workers, its master's machine and the brokers go: each record counts once."""

import re
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from ..doubles.kafka_brokers import brokers
from .cluster import SCRIPTS, Cluster
from .server_jobs import BEGUN, SECONDS, kill_servers, kill_whole, newest, run

pytest.importorskip("confluent_kafka", reason="the extra `streams`")


def test_each_record_counts_once_when_a_worker_the_brokers_and_the_masters_machine_are_lost(job: Cluster) -> None:
    with brokers(2, clicks=3) as cluster:
        cluster.produce("clicks", {number: [f"{number}:{each}".encode() for each in range(300)] for number in range(3)})
        log = job.directory / "clicks"
        job.start(
            "A", "B", script=SCRIPTS / "follow_clicks.py", args=["clicks", cluster.servers, str(log)], nnodes="1:2"
        )
        workers = job.workers(2)
        for rank in (0, 1):
            workers.wait_for("begun", rank)
        for number in (1, 2):
            cluster.set_down(number)
        job.kill_worker(1)
        workers = job.workers(2)
        threading.Timer(0.5, lambda: [cluster.set_up(number) for number in (1, 2)]).start()
        for rank in (0, 1):
            workers.wait_for("begun", rank)
        master = job.master()
        job.kill_machine(master)
        job.workers(1).release()
        assert job.finish() == {"B" if master == "A" else "A": 0}

    told, done = defaultdict[str, list[int]](list), Counter[str]()
    rounds: dict[str, int] = {}
    for line in log.read_text().splitlines():
        word, round, _, *values = line.split()
        for value in values:
            if word == "done":
                done[value] += 1
                rounds[value] = int(round)
            else:
                told[value].append(int(round))
    assert told.keys() == {f"{number}:{each}" for number in range(3) for each in range(300)}
    assert set(done.values()) == {1} and set(rounds.values()) == {1, 2, 3}
    assert all(round <= rounds.get(value, round) for value, each in told.items() for round in each), "used once more"
    assert len(told) - len(done) <= 20, "a worker was killed between both words"


LINES = str(SCRIPTS / "servers_count.py"), "--by=numpy", "--stream=lines"


def write_lines(folder: Path, number: int, first: int, stop: int) -> None:
    (folder / "lines").mkdir(exist_ok=True)
    (folder / "lines" / f"{number}.txt").write_text("".join(f"{each}\n" for each in range(first, stop)))


def test_each_line_of_files_is_in_a_table_once_whatever_worker_dies(tmp_path: Path) -> None:
    for number in range(3):
        write_lines(tmp_path, number, 2000 * number, 2000 * (number + 1))
    words = *LINES, "--die", "1:3:before", "2:2:after"
    code, said = run(tmp_path, "--servers=1", "--max-restarts=2", "--same-failure-limit=0", *words, nproc=2)
    assert code == 0, said
    assert len(re.findall("dies (?:before|after) push", said)) == 2, said
    assert "counted [1.0] 6000" in said


def test_each_line_is_in_a_saved_table_once_though_all_servers_and_then_the_whole_job_are_lost(tmp_path: Path) -> None:
    for number in range(2):
        write_lines(tmp_path, number, 2500 * number, 2500 * (number + 1))
    saved = f"--ps-checkpoint={tmp_path / 'rows'}", "--ps-checkpoint-every=1", "--max-restarts=2", "--rdzv-id=job"
    launcher = sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", *saved
    words = "--servers=2", *LINES, "--pause=0.2", "--die", "1:3:before"
    said, pushed, lost = list[str](), 0, list[int]()
    with subprocess.Popen(
        (*launcher, *words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        assert job.stdout is not None
        for line in job.stdout:
            said.append(line)
            pushed += "pushed" in line
            if not lost and pushed >= 20 and newest(tmp_path):
                lost.append(newest(tmp_path))
                kill_servers(job.pid)
            elif len(lost) == 1 and BEGUN in line:
                lost.append(newest(tmp_path))
            elif len(lost) == 2 and newest(tmp_path) > lost[1]:
                break
        kill_whole(job, tmp_path)
        job.wait(SECONDS)
    assert len(lost) == 2 and any("dies before push" in each for each in said), "".join(said)
    write_lines(tmp_path, 2, 5000, 6000)  # it comes meanwhile
    done = subprocess.run(
        (*launcher, "--servers=1", *LINES), cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0 and "of an earlier run" in done.stdout + done.stderr, done.stdout + done.stderr
    assert "counted [1.0] 6000" in done.stdout, done.stdout
