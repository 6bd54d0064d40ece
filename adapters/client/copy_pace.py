"""How often a state is copied into memory where the script leaves that to us: as often as it costs little (pure)."""

import math

from ...rendezvous.base.frozen import dataclass

SHARE = 0.03
"""Of the time of steps that copies may take."""

AUTO = "auto"
"""What a script says for that."""


@dataclass(frozen=True, slots=True)
class CopyPace:
    """From one copy to the next.

    Attributes:
        every: steps.
        last: the step of the last copy; None: there was none in this round.
    """

    every: int = 1
    last: int | None = None

    def is_due(self, step: int) -> bool:
        """Whether this step is copied."""
        return self.last is None or step - self.last >= self.every

    def choose(self, copy: float, steps: float) -> int:
        """Steps until the next copy; what rank 0 chooses holds on every rank.

        At most twice as many as last time: the first copy also makes the memory, and takes longer than others.

        Args:
            copy: seconds that this copy took.
            steps: seconds of the steps since the last one, all together; 0: there were none.
        """
        if self.last is None or steps <= 0:
            return self.every
        wanted = math.ceil(copy / (SHARE * steps / self.every))
        return max(1, min(wanted, 2 * self.every))
