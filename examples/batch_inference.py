"""Batch inference in plain Python: every picture is labelled once, whichever workers are lost. No framework.

    elastic-run --standalone --nproc-per-node=3 examples/batch_inference.py --out /tmp/labels

Each worker leases shards of the pictures and writes one file for each shard. A shard counts as done only when its file
is there; one that a lost worker had is given to another, which writes the same file again. With --fail the
workers that come to a second shard before all is done kill themselves once, in the middle of it.
"""

import argparse
import json
import os
import signal
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import elastic_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("labels"))
    parser.add_argument("--fail", action="store_true", help="workers kill themselves once, in their second shard")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    here = elastic_run.context()

    digits = load_digits()
    known, asked = np.arange(0, 900), np.arange(900, len(digits.target))
    model = KNeighborsClassifier(3).fit(digits.data[known], digits.target[known])

    written = 0
    with elastic_run.data.shards("pictures", len(asked), shard_size=50, shuffle=False, commit="ack") as shards:
        for shard in shards:
            rows = asked[list(shard.indices)]
            labels = model.predict(digits.data[rows])
            if options.fail and here.restart_count == 0 and written == 1:  # one of the two has a second shard
                os.kill(os.getpid(), signal.SIGKILL)
            part = options.out / f"{shard.key}.{os.getpid()}.part"
            part.write_text(json.dumps(dict(zip(map(int, rows), map(int, labels), strict=True))))
            part.rename(options.out / f"{shard.key}.json")  # whole or absent, and the same whoever writes it
            shard.done()
            written += 1
    print(f"rank {here.rank} labelled {written} shards", flush=True)

    if here.rank == 0:  # the loop ends on every rank only when all shards are done
        found: dict[str, int] = {}
        for file in options.out.glob("*.json"):
            found.update(json.loads(file.read_text()))
        right = sum(int(digits.target[int(row)]) == label for row, label in found.items())
        print(
            f"{len(found)} of {len(asked)} pictures have a label, {100 * right / len(found):.1f} % are right",
            flush=True,
        )


if __name__ == "__main__":
    main()
