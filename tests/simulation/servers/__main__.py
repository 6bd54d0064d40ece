"""Simulates a job's parameter servers: the real `ServerMachine` and placement of slots, on a virtual network and clock.

timeline.py         virtual time
lines.py            machines, processes and connections: delay, loss, silence, partitions
server_process.py   what the product's I/O does around one `ServerMachine`
slot_store.py       the store's table, registrations and leases, the leader and the agents' view of them
saved_tables.py     checkpoints in a folder, and who goes back to one
trainers.py         a ledger with leased shards, and workers that pull and push
stream_trainers.py  workers that train on a stream, and its ledger
step_trainers.py    ranks of synchronous training, that prepare steps and apply them
holdings.py         what is in a server's memory, and what has to be there by its marks
server_rules.py     what must be true at every moment, and at the end
server_job.py       all of it together, and what can be done to it
server_schedules.py jobs and faults, drawn from a seed
server_defects.py   planted defects, each with the seed that finds it

python -m tests.simulation.servers --seed 7        one schedule, told line by line
python -m tests.simulation.servers --seeds 0:500   many
"""

import argparse
import sys
import time
from collections import Counter

from .server_job import ServerJob
from .server_schedules import draw_schedule


def show_seed(seed: int) -> int:
    """One schedule, line by line."""
    schedule = draw_schedule(seed)
    print(schedule.shape)
    for fault in schedule.faults:
        print(fault.text)
    job = ServerJob(schedule)
    broken = job.run()
    print("\n".join(job.trace))
    print(f"BROKEN {broken}" if broken else "no rule is broken")
    return int(broken is not None)


def explore_seeds(seeds: range) -> int:
    """Many; how many broke which rule."""
    began, done, broken = time.perf_counter(), Counter[str](), dict[str, list[int]]()
    for seed in seeds:
        job = ServerJob(draw_schedule(seed))
        try:
            found = job.run()
            rule = found.rule if found is not None else ""
            what = str(found)
        except Exception as error:  # noqa: BLE001  whatever the product raises is a finding
            rule, what = f"{type(error).__name__}: {error}"[:150], repr(error)
        done.update(job.done)
        if rule:
            print(f"seed {seed}: {what}", flush=True)
            broken.setdefault(rule, []).append(seed)
    print(f"{len(seeds)} schedules in {time.perf_counter() - began:.0f} s; faults: {dict(sorted(done.items()))}")
    for rule, some in sorted(broken.items(), key=lambda item: -len(item[1])):
        print(f"{len(some):4} {rule}: seeds {some[:8]}")
    return int(bool(broken))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.servers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0:200")
    options = parser.parse_args()
    if options.seed is not None:
        return show_seed(options.seed)
    first, _, last = options.seeds.partition(":")
    return explore_seeds(range(int(first), int(last)))


if __name__ == "__main__":
    sys.exit(main())
