"""How many examples a property is tried with: few in the inner loop, all of them in the whole suite, more in a soak."""

import os

EXAMPLES = "ELASTIC_RUN_EXAMPLES"
"""A factor: 1 has all examples tried, as `make test` does, and 10 ten times as many. Without it few are tried."""


def examples(every: int, few: int) -> int:
    """`max_examples` of a property that needs `every` to be sure of, and of which `few` take less than a second."""
    factor = os.environ.get(EXAMPLES)
    return few if factor is None else max(1, int(every * float(factor)))
