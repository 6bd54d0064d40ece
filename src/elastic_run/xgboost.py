"""XGBoost: where the tracker of this worker's round is.

    import elastic_run
    from xgboost import collective

    with collective.CommunicatorContext(**elastic_run.xgboost.communicator_args()):
        xgboost.train(...)

Importing this does not load XGBoost.
"""

from .adapters.xgboost.communicator import communicator_args

__all__ = ["communicator_args"]


def __dir__() -> list[str]:
    return sorted(__all__)
