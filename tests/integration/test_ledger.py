"""Whole jobs whose workers lease shards of the master, while masters come and go: none is leased twice or forgotten."""

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.store.contract import Delete

from .cluster import SCRIPTS, Cluster

if TYPE_CHECKING:
    pass

SHARDS = 400


def lease(job: Cluster, *nodes: str, tracking: str, **flags: Any) -> None:  # Any: as `Cluster.start` has them
    """Starts workers that lease all places."""
    args = [f"--tracking={tracking}", f"--shards={SHARDS}", f"--log={job.directory / 'leases'}"]
    job.start(*nodes, script=SCRIPTS / "leases.py", args=args, **flags)


def noted(job: Cluster, what: str) -> dict[int, list[int]]:
    """The places that workers wrote down with that word, by round."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for line in (job.directory / "leases").read_text().splitlines():
        word, round, _, shard_index = line.split()
        if word == what:
            found[int(round)].append(int(shard_index))
    return found


def twice(shard_indices: list[int]) -> set[int]:
    return {shard_index for shard_index, count in Counter(shard_indices).items() if count > 1}


async def _keys(job: Cluster, *, drop: str = "") -> list[str]:
    store = job.store()
    try:
        if drop:
            await store.txn([], [Delete(drop)])
        found = [item.key for item in (await store.list(Keys(job.job).root, keys_only=True)).items]
        return [key for key in found if "/ends/" not in key]  # as that of the success, they go by themselves
    finally:
        await store.close()


def test_work_that_is_acknowledged_is_not_done_again_when_the_masters_machine_is_lost(job: Cluster) -> None:
    lease(job, "A", "B", tracking="ack", nnodes="1:2")
    first = job.workers(2)
    first.wait_for("half")
    master = job.master()
    job.kill_machine(master)
    other = "B" if master == "A" else "A"
    job.workers(1).release()
    assert job.finish() == {other: 0}

    leases, told, done = noted(job, "lease"), noted(job, "told"), noted(job, "done")
    assert set(leases) == {1, 2}
    assert not twice(leases[1]) and not twice(leases[2])  # it was lost before anybody had nothing to do
    assert not set(done[1]) & set(leases[2]), "acknowledged, and leased again"
    assert set(told[1]) | set(done[2]) == set(range(SHARDS))
    assert asyncio.run(_keys(job)) == [Keys(job.job).outcome]


def test_the_next_masters_of_a_round_lease_no_shard_twice(job: Cluster) -> None:
    lease(job, "A", "B", tracking="checkpoint", nnodes="2:2")
    first = job.workers(2)
    first.wait_for("half")
    first.release()
    for _ in range(3):
        asyncio.run(_keys(job, drop=Keys(job.job).leader))
    assert job.finish() == {"A": 0, "B": 0}

    leases = noted(job, "lease")
    assert set(leases) == {1}
    assert sorted(leases[1]) == list(range(SHARDS))
    assert "no longer runs here" in job.log("A") + job.log("B")
    assert asyncio.run(_keys(job)) == [Keys(job.job).outcome]


def test_a_job_that_was_stopped_goes_on_with_its_queue_when_it_is_started_again(job: Cluster) -> None:
    lease(job, "A", "B", tracking="ack", nnodes="2:2", max_restarts=0)
    first = job.workers(2)
    first.wait_for("half")
    job.kill_worker(1)
    assert job.finish() == {"A": 1, "B": 1}
    keys = Keys(job.job)
    assert asyncio.run(_keys(job)) == [keys.queue("data")]
    told, done = set(noted(job, "told")[1]), set(noted(job, "done")[1])
    (job.directory / "leases").unlink()

    lease(job, "A", "B", tracking="ack")
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0}
    again = set(noted(job, "lease")[1])
    assert not done & again and told | again == set(range(SHARDS))
    assert asyncio.run(_keys(job)) == [keys.outcome]


def test_a_single_node_without_a_store_has_a_ledger_too(job: Cluster) -> None:
    job.endpoint = None
    lease(job, "A", tracking="checkpoint", nnodes="1", nproc_per_node=2)
    job.workers(2).release()
    assert job.finish() == {"A": 0}
    assert sorted(noted(job, "lease")[1]) == list(range(SHARDS))


def test_a_rank_that_waits_for_one_that_has_ended_is_told_and_does_not_wait_for_ever(job: Cluster) -> None:
    job.start("A", script=SCRIPTS / "ends_early.py", args=(), nproc_per_node=2, max_restarts=0)
    assert job.finish() == {"A": 1}
    job.wait_for_line("A", r"rank 0 waits for rank 1, which exited with code 0 and will never call state_dict\(\)")
