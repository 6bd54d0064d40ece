"""Jobs whose framework has its workers find each other, and processes of its own beside them."""

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from .cluster import SCRIPTS, Cluster


def installed(folder: Path) -> dict[str, str]:
    """The variables of an agent for which the adapter `crew` is installed."""
    site = folder / "site-packages"
    facts = site / "crew-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: crew\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[elastic_run.adapters]\ncrew = crew_adapter:Crew\n")
    for name in ("crew_adapter.py", "crew_service.py"):
        shutil.copy(SCRIPTS / name, site)
    return {"PYTHONPATH": str(site)}


SERVE = """
import json, socket
peers = json.loads(os.environ["CREW_PEERS"])
servers = [socket.create_server((host, port)) for host, *ports in [peers[int(rank)]] for port in ports]
"""

CONNECT = "[socket.create_connection((host, port)).close() for host, *ports in peers for port in ports]"


def test_workers_can_bind_their_own_ports_and_know_those_of_all_others(job: Cluster, tmp_path: Path) -> None:
    job.start("A", "B", nnodes=2, nproc_per_node=2, framework="crew", env=installed(tmp_path))
    seen: list[set[int]] = []
    for _ in range(2):
        workers = job.workers(4)
        for rank in range(4):
            workers.do(rank, SERVE)
        for rank in range(4):
            workers.do(rank, CONNECT)
        workers.do(0, "strings.say(os.environ['CREW_PEERS'])")
        peers = json.loads(workers[0].said[-1])
        ports = {port for _, *some in peers for port in some}
        assert len(peers) == 4 and len(ports) == 8
        seen.append(ports)
        if len(seen) == 1:
            job.kill_worker(3)
    assert not seen[0] & seen[1], "what is left of one round never meets the next"
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}


def told(job: Cluster, node: str, service: str) -> list[dict[str, Any]]:  # Any: JSON
    """What that service was told on that node so far, each time with its pid."""
    file = job.directory / f"told-{node}-{service}"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def services(folder: Path, *words: str) -> dict[str, str]:
    """The variables of an agent that keeps these services; see `crew_adapter.Crew`."""
    return {**installed(folder), "CREW_SERVICES": ",".join(words)}


def test_a_service_that_is_killed_is_named_and_restarted_with_the_round(job: Cluster, tmp_path: Path) -> None:
    wanted = services(tmp_path, "tracker round first serve", "watch job every serve")
    job.start("A", "B", nnodes=2, framework="crew", env=wanted)
    workers = job.workers(2)
    first, other = workers.nodes
    (tracker,), (watch,) = told(job, first, "tracker"), told(job, first, "watch")
    assert told(job, other, "tracker") == [] and len(told(job, other, "watch")) == 1
    assert (tracker["round"], tracker["world_size"], tracker["nodes"]) == (1, 2, 2)
    assert tracker["master_port"] == int(workers[0].env["MASTER_PORT"])
    assert [len(peer["ports"]) for peer in tracker["peers"]] == [2, 2]
    job.wait_for_line(first, rf"\[{first} tracker\] tracker serves round 1")
    assert not any(re.fullmatch(r"\[. tracker\] ready", line) for line in job.nodes[first].lines)

    os.kill(tracker["pid"], signal.SIGKILL)
    workers = job.workers(2)
    for node in "AB":
        job.wait_for_line(
            node,
            rf"round 2: 2 -> 2 nodes, .*{first} could not continue: "
            rf"the service tracker \(pid {tracker['pid']}\) died by SIGKILL \(9\)",
        )
    again, kept = told(job, first, "tracker"), told(job, first, "watch")
    assert again[-1]["round"] == 2 and again[-1]["pid"] != tracker["pid"]
    assert [each["round"] for each in kept] == [1, 2] and {each["pid"] for each in kept} == {watch["pid"]}
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}
    for node in "AB":
        for pid in {each["pid"] for name in ("tracker", "watch") for each in told(job, node, name)}:
            job.gone(pid)


def test_the_services_of_a_killed_agent_die_with_it(job: Cluster, tmp_path: Path) -> None:
    job.start("A", "B", nnodes="1:2", framework="crew", env=services(tmp_path, "watch job every serve"))
    victim, survivor = job.workers(2).nodes
    (before,) = told(job, victim, "watch")
    job.kill_agent(victim)
    job.gone(before["pid"])
    workers = job.workers(1)
    assert [(each["round"], each["nodes"]) for each in told(job, survivor, "watch")] == [(1, 2), (2, 1)]
    workers.release()
    assert job.finish()[survivor] == 0


def test_workers_start_without_a_service_that_is_silent_and_the_reason_is_said(job: Cluster, tmp_path: Path) -> None:
    wanted = services(tmp_path, "mute round first silent", "setup round every once")
    job.start("A", nnodes=1, framework="crew", env=wanted)
    workers = job.workers(1)
    job.wait_for_line(
        "A", r"the service mute \(pid \d+\) has not said that it is ready within 1 s: starting the workers"
    )
    (setup,) = told(job, "A", "setup")
    job.gone(setup["pid"])
    workers.release()
    assert job.finish() == {"A": 0}, "one that has ended with 0 has done its work"


@pytest.mark.parametrize("behaviour", ["leave", "detach"])
def test_a_child_that_a_service_leaves_ends_with_the_job(job: Cluster, tmp_path: Path, behaviour: str) -> None:
    job.start("A", nnodes=1, framework="crew", env=services(tmp_path, f"daemon job every {behaviour}"))
    job.workers(1).release()
    assert job.finish() == {"A": 0}
    job.gone(int((job.directory / "left-A").read_text()))
    assert "keep running" not in job.log("A")


def test_a_service_that_cannot_serve_is_named_and_keeps_no_worker_running(job: Cluster, tmp_path: Path) -> None:
    job.start("A", nnodes=1, framework="crew", env=services(tmp_path, "tracker round first fail"))
    assert job.finish() == {"A": 1}
    assert re.search(r"the service tracker \(pid \d+\) exited with code 1: no licence", job.log("A"))
    for line in job.nodes["A"].lines:  # each try is told once, and the last lines say it again
        assert not line.startswith("[elastic-run] the service tracker")
    assert len(told(job, "A", "tracker")) == 2
