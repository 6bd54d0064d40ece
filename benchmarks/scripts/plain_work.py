"""Workers of a job without any framework: ready, a number of steps, a last line.

Called with a journal to append to, the folder of the run, the number of steps and the rounds of arithmetic in each, and
for how many seconds to wait before the last line, and before it is ready. The workers wait for each other before the
first step. The answer of each: its process, and when its steps began and ended (seconds of the monotonic clock).
"""

import json
import os
import sys
import time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PRINT_EVERY = 10


def main(journal: str, folder: Path, steps: int, rounds: int, rest: float, settle: float) -> None:
    time.sleep(settle)
    (folder / f"ready{RANK}").touch()
    while not all((folder / f"ready{rank}").exists() for rank in range(WORLD)):
        time.sleep(0.001)
    begun = time.monotonic()
    for step in range(1, steps + 1):
        loss = sum(number * number for number in range(rounds))
        if step % PRINT_EVERY == 0:
            print(f"step {step}: loss {loss}", flush=True)
    answer = {"pid": os.getpid(), "begun": begun, "ended": time.monotonic()}
    part = folder / f"part{RANK}"
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.rename(folder / f"answer{RANK}")
    time.sleep(rest)
    out = os.open(journal, os.O_WRONLY | os.O_APPEND)
    os.write(out, f"line {RANK} {WORLD} {time.monotonic_ns()}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
