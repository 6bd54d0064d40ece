"""How many examples a property is tried with."""

import os


def examples(count: int) -> int:
    """`count`, times the factor ELASTIC_RUN_EXAMPLES; at least 1."""
    return max(1, round(count * float(os.environ.get("ELASTIC_RUN_EXAMPLES", "1"))))
