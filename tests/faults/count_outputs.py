"""Work on leased shards whose result is one file for each shard: commit="ack". No worker waits for another.

A file holds the records of its shard, one in each line. How many there are is what the test takes for steps.
"""

import argparse
import os
from pathlib import Path

from counting import may_finish, pause, tell, waited
from failpoint import reached
from train import Test

import elastic_run

OUTPUTS = Path("outputs")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--shard-size", type=int, default=7)
    options = parser.parse_args()

    test = Test()
    here = elastic_run.context()
    OUTPUTS.mkdir(exist_ok=True)
    print(f"rank {here.rank} of {here.world_size} begins", flush=True)
    sizes = {"shard_size": options.shard_size, "epochs": options.epochs}
    with elastic_run.data.shards("records", options.size, **sizes, commit="ack") as data:
        for shard in data:
            test.obey()
            while shard.epoch == options.epochs - 1 and not may_finish():
                test.obey()
                waited()
                tell(outputs())
                pause()
            # The name of the part is no other worker's, nor that of a worker of another round that may still be at it.
            part = OUTPUTS / f"{shard.key}.{here.round}-{here.rank}.part"
            part.write_text("".join(f"{record}\n" for record in shard.indices))
            reached(f"between an output and its rename, rank {here.rank}")
            part.rename(OUTPUTS / shard.key)
            reached(f"between the rename and done, rank {here.rank}")
            shard.done()
            reached(f"between done and the next request, rank {here.rank}")
            if not may_finish():
                tell(outputs())
            pause()
    print(f"rank {here.rank} has nothing left to do", flush=True)


def outputs() -> int:
    """How many are complete."""
    return sum(1 for path in os.scandir(OUTPUTS) if not path.name.endswith(".part"))


if __name__ == "__main__":
    main()
