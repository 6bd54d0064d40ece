"""Jobs with servers, drawn from seeds, break no rule, and each is the same when it is run again.

Each run takes ELASTIC_RUN_SERVER_SCHEDULES of the seeds 0 to 2,999, and `make soak` all of them; and an eighth as many
of those from 20,000 on, whose workers are ranks in step, of those from 30,000 on, which go back as well, and of those
from 100,000 on, whose rows go to disk; and a sixteenth of those from 60,000 on, of streams.
"""

import os
from collections import Counter
from hashlib import sha256

import pytest

from ...sampling import SOAK, sample_seeds
from .server_job import ServerJob
from .server_schedules import IN_STEP, ON_DISK, RETURN, RETURNING, STREAMS, VERBS, draw_schedule

POOL = 3_000
"""Seeds that are drawn from."""

SCHEDULES = POOL if SOAK else int(os.environ.get("ELASTIC_RUN_SERVER_SCHEDULES", "80"))

CHUNK = 40
"""Schedules of one test."""

ENOUGH_FOR_ALL = 300
"""Schedules among which every fault comes about."""


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_no_schedule_breaks_a_rule_of_servers(start: int) -> None:
    broken = {seed: ServerJob(draw_schedule(seed)).run() for seed in sample_seeds(POOL, SCHEDULES)[start:][:CHUNK]}
    found = {seed: str(rule) for seed, rule in broken.items() if rule is not None}
    assert not found, "python -m tests.simulation.servers --seed N shows one"


@pytest.mark.slow
@pytest.mark.parametrize("first", [IN_STEP, RETURNING])
def test_no_schedule_of_ranks_in_step_breaks_a_rule_of_servers(first: int) -> None:
    seeds = [first + seed for seed in sample_seeds(POOL, SCHEDULES // 8)]
    broken = {seed: ServerJob(draw_schedule(seed)).run() for seed in seeds}
    found = {seed: str(rule) for seed, rule in broken.items() if rule is not None}
    assert not found, "python -m tests.simulation.servers --seed N shows one"


@pytest.mark.slow
def test_no_schedule_with_rows_on_disk_breaks_a_rule_of_servers() -> None:
    seeds = [ON_DISK + seed for seed in sample_seeds(POOL, SCHEDULES // 8)]
    seeds += [ON_DISK + IN_STEP + seed for seed in sample_seeds(POOL, SCHEDULES // 40)]
    broken = {seed: ServerJob(draw_schedule(seed)).run() for seed in seeds}
    found = {seed: str(rule) for seed, rule in broken.items() if rule is not None}
    assert not found, "python -m tests.simulation.servers --seed N shows one"


@pytest.mark.slow
def test_no_schedule_of_a_stream_breaks_a_rule_of_servers() -> None:
    seeds = [STREAMS + seed for seed in sample_seeds(POOL, SCHEDULES // 16)]
    broken = {seed: ServerJob(draw_schedule(seed)).run() for seed in seeds}
    found = {seed: str(rule) for seed, rule in broken.items() if rule is not None}
    assert not found, "python -m tests.simulation.servers --seed N shows one"


@pytest.mark.slow
def test_every_kind_of_fault_is_done_to_servers() -> None:
    done = Counter[str]()
    for seed in range(ENOUGH_FOR_ALL):
        job = ServerJob(draw_schedule(seed))
        assert job.run() is None, seed
        done.update(job.done)
        if set(done) == {*VERBS, RETURN}:
            return
    pytest.fail(f"no schedule of {ENOUGH_FOR_ALL} does {sorted({*VERBS, RETURN} - set(done))}")


def digest_run(seed: int) -> str:
    """Of the trace of that seed."""
    job = ServerJob(draw_schedule(seed))
    job.run()
    return sha256("\n".join(job.trace).encode()).hexdigest()


def test_the_same_seed_gives_the_same_run_of_servers_again() -> None:
    first = [digest_run(seed) for seed in range(6)]
    assert first == [digest_run(seed) for seed in range(6)]
    assert len(set(first)) == len(first)
