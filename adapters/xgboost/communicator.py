"""The arguments of XGBoost's communicator, as the launcher of this worker says them."""

import os

from ..client.context import BadEnvironment
from .adapter import HOST, PORT, TASK


def communicator_args() -> dict[str, str | int]:
    """The arguments of `xgboost.collective.CommunicatorContext` for this worker in its round.

    Returns:
        `dmlc_tracker_uri`, `dmlc_tracker_port`, and `dmlc_task_id`, by which XGBoost's rank is `RANK`.

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
    }
