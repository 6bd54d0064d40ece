"""The arguments of XGBoost's communicator, as the launcher of this worker says them."""

import os

from ..client.context import BadEnvironment
from .adapter import HOST, PORT, TASK

_RETRIES = 10
"""How often a worker tries again to reach the tracker. XGBoost waits two seconds longer before each: with these, up to
90 s. Its own 3 give up after 6 s, and another node's tracker may take longer to start on a busy machine."""


def communicator_args() -> dict[str, str | int]:
    """The arguments of `xgboost.collective.CommunicatorContext` for this worker in its round.

    Returns:
        `dmlc_tracker_uri`, `dmlc_tracker_port`, `dmlc_task_id`, by which XGBoost's rank is `RANK`, and `dmlc_retry`.

    Raises:
        elastic_run.exceptions.BadEnvironment: the worker was not started with `--framework=xgboost`.
    """
    if missing := [name for name in (HOST, PORT, TASK) if name not in os.environ]:
        raise BadEnvironment(
            f"the environment has no {' and no '.join(missing)}: start the job with elastic-run --framework=xgboost"
        )
    return {
        "dmlc_communicator": "rabit",
        "dmlc_tracker_uri": os.environ[HOST],
        "dmlc_tracker_port": int(os.environ[PORT]),
        "dmlc_task_id": os.environ[TASK],
        "dmlc_retry": _RETRIES,
    }
