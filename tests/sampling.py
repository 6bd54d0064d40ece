"""How much of what could be tried a run tries: the seed that draws samples, and how many examples a property has.

- ELASTIC_RUN_SEED chooses the seed, which tests/conftest.py draws where nobody has chosen one.
- ELASTIC_RUN_SOAK=N (`make soak`): every sample is the whole, and what is repeated runs with N seeds, from the seed on.
- ELASTIC_RUN_EXAMPLES=F: a property is tried with F times all of its examples; 1 in `make test`. Without it few are.
"""

import os
import random
from collections.abc import Iterable, Sequence

SEED = int(os.environ.get("ELASTIC_RUN_SEED", "1"))

SOAK = int(os.environ.get("ELASTIC_RUN_SOAK", "0"))
"""How many seeds; 0: this run is no soak."""

SEEDS = range(SEED, SEED + max(SOAK, 1))
"""Of what is repeated with other random numbers."""

EXAMPLES = os.environ.get("ELASTIC_RUN_EXAMPLES")


def sample(matrix: Iterable[str], count: int, name: str) -> list[str]:
    """`count` members of `matrix`, drawn by the seed and `name`, or all of them in a soak: sorted."""
    everything = sorted(matrix)
    return everything if SOAK else sorted(random.Random(f"{name} {SEED}").sample(everything, count))


def sample_seeds(pool: int, count: int) -> Sequence[int]:
    """`count` of the seeds below `pool`, or all of them in a soak: sorted."""
    return range(pool) if SOAK else sorted(random.Random(SEED).sample(range(pool), count))


def examples(every: int, few: int) -> int:
    """`max_examples` of a property that needs `every` to be sure of, and of which `few` take less than a second."""
    return few if EXAMPLES is None else max(1, int(every * float(EXAMPLES)))
