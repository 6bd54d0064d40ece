"""What is left of a job's data where all of its workers have ended (pure)."""

from collections.abc import Iterable

from .ledger import State

NAMED = 3
"""Shards that a person is told of."""


def describe_left(states: Iterable[State]) -> str:
    """The shards that a worker had begun which ended with exit code 0, and that nobody has now; empty: there are none.

    Only of data whose gradients go to tables, where each record is to count once. A worker that ends before its data
    on purpose gives back what it has (`close()`, or the exit of its interpreter): that is not among them.
    """
    left = [
        f"shard {piece.shard_index} of dataset {state.dataset.name!r}"
        for state in states
        if state.dataset.alone and state.ends
        for piece in state.returned
        if piece.returned
    ]
    return ", ".join(left[:NAMED]) + (f" and {len(left) - NAMED} more" if len(left) > NAMED else "")
