"""Jobs whose framework has its workers find each other, and processes of its own beside them."""

import json
from pathlib import Path

from .cluster import SCRIPTS, Cluster

ADAPTER = (SCRIPTS / "crew_adapter.py").read_text()


def installed(folder: Path) -> dict[str, str]:
    """The variables of an agent for which the adapter `crew` is installed."""
    site = folder / "site-packages"
    facts = site / "crew-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: crew\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[elastic_run.adapters]\ncrew = crew_adapter:Crew\n")
    (site / "crew_adapter.py").write_text(ADAPTER)
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
