"""A script that starts processes of its own behind `if __name__ == "__main__"`, by fork and by spawn."""

import multiprocessing
import os


def twice(number):
    return 2 * number


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(f"rank {os.environ['RANK']} {method}: {pool.map(twice, range(4))}", flush=True)
