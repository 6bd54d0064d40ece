"""The ledger of a world of one, in the process itself: in place of the connection to an agent."""

import time

from ...master.data.ledger import Answer, Dataset, fresh, ledger_of
from .channel import Back, Call


class OwnLedger:
    """Of one dataset, of which nothing is done."""

    def __init__(self, dataset: Dataset) -> None:
        self._ledger = ledger_of(fresh(dataset), time.monotonic())
        self._answer: Answer | None = None

    def send(self, call: Call) -> None:
        """See `Channel`."""
        assert call.request is not None
        self._answer = self._ledger.answer(call.request, time.monotonic())

    def ready(self, seconds: float = 0.0) -> bool:
        """See `Channel`."""
        return True

    def receive(self, timeout: float | None = None) -> Back:
        """See `Channel`."""
        assert self._answer is not None, "there is nobody to wait for"
        return Back(self._answer)

    def close(self) -> None:
        """Nothing is open."""
