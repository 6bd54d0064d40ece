"""XGBoost's tracker, for one round after the other: an agent runs this file beside its workers.

The tracker has no timeout of its own: it waits for workers that load their data for as long as their agents let them.
"""

import contextlib
import json
import sys


def main() -> None:
    """Serves each round that a line on stdin tells of, until the agent ends this process."""
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    tracker: RabitTracker | None = None
    for line in sys.stdin:
        told = json.loads(line)
        if tracker is not None:
            with contextlib.suppress(XGBoostError):  # that its workers never came, or are gone
                tracker.free()
        tracker = RabitTracker(
            n_workers=told["world_size"], host_ip=told["master_addr"], port=told["master_port"], sortby="task"
        )
        tracker.start()
        print("ready", flush=True)


if __name__ == "__main__":
    main()
