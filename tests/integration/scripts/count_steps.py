"""Counts to a number, ten steps a second; rank 0 keeps the count in a file, from which a restarted job goes on."""

import os
import sys
import time
from pathlib import Path


def main(file: Path, steps: int) -> None:
    rank, size, node = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "SLURMD_NODENAME"))
    done = int(file.read_text()) if file.exists() else 0
    print(f"rank {rank} of {size} on {node} begins at step {done}", flush=True)
    while done < steps:
        time.sleep(0.1)
        if rank == "0":
            file.with_suffix(".new").write_text(str(done + 1))
            file.with_suffix(".new").replace(file)
        done = int(file.read_text()) if file.exists() else 0
    print(f"rank {rank} of {size} has counted to {done}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
