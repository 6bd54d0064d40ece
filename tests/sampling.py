"""The seed of a run, and the sample of a large matrix of tests that it draws.

ELASTIC_RUN_SEED chooses the seed, which tests/conftest.py draws where nobody has chosen one. With ELASTIC_RUN_SOAK=N
(`make soak`) every sample is the whole matrix, and what is repeated runs with N seeds, from that one on.
"""

import os
import random
from collections.abc import Iterable

SEED = int(os.environ.get("ELASTIC_RUN_SEED", "1"))

WHOLE = "ELASTIC_RUN_SOAK"

SOAK = int(os.environ.get(WHOLE, "0"))
"""How many seeds; 0: this run is no soak."""

SEEDS = range(SEED, SEED + max(SOAK, 1))
"""Of what is repeated with other random numbers."""


def sample(matrix: Iterable[str], count: int, name: str) -> list[str]:
    """`count` members of `matrix`, drawn by the seed and `name`, or all of them in a soak: sorted."""
    everything = sorted(matrix)
    return everything if SOAK else sorted(random.Random(f"{name} {SEED}").sample(everything, count))
