"""Models in four functions: what their files call, so that one is trained in a process without a launcher.

    def metrics(output, labels):
        return {"auc": elastic_run.models.AUC(output, labels)}

    if __name__ == "__main__":
        elastic_run.models.main()  # python model.py train --data='train/*.csv'

Importing this loads no framework.
"""

import sys
from collections.abc import Sequence

from .adapters.models.auc import AUC
from .adapters.models.worker import run

__all__ = ["AUC", "main"]


def main(words: Sequence[str] | None = None) -> None:
    """Trains, evaluates, predicts with or exports the model that the running script is.

    The script has the functions `forward`, `loss`, `optimizer` and `feed`. Under a debugger it stops in them.

    Args:
        words: train, evaluate, predict or export, and flags; None: those of the command line.

    Raises:
        SystemExit: that cannot be done; the reason was printed.
    """
    run(sys.argv[1:] if words is None else words, sys.modules["__main__"])


def __dir__() -> list[str]:
    return sorted(__all__)


if __name__ == "__main__":  # python -m elastic_run.models train model.py: what `elastic-run train` starts
    run(sys.argv[1:])
