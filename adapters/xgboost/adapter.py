"""XGBoost's adapter: a tracker beside the workers, and the variables by which a communicator finds it (pure)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..contract import Hint, Round, Service, Worker
from ..plain import COLLECTIVES, Plain

HOST, PORT, TASK = "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID"
"""Variables with the names of XGBoost's arguments: `elastic_run.xgboost.communicator_args` reads them."""


class XGBoost(Plain):
    """Tells XGBoost's workers where their tracker is, and keeps it."""

    name = "xgboost"
    needs = ("xgboost",)
    port = PORT
    per_worker = frozenset([HOST, PORT, TASK])
    consequences = (*COLLECTIVES, r"XGBoostError.*src/collective/", r"(Allreduce|Allgather|Broadcast) failed")
    hints = (
        Hint(
            r"Check failed: .*(num_col|num_feature|feature_names)|feature_names mismatch",
            "the workers' parts of the data differ in their columns: give each worker the same ones",
        ),
    )

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """The arguments of XGBoost's communicator. The tracker gives ranks in the order of the tasks' names."""
        return {HOST: round.master_addr, PORT: str(round.master_port), TASK: f"{worker.rank:08d}"}

    def services(self, round: Round) -> Sequence[Service]:
        """The tracker. It stays from round to round, because the import of XGBoost takes seconds."""
        # By its path: the workers' Python need not have elastic-run.
        program = str(Path(__file__).with_name("tracker.py"))
        return (Service("tracker", (program,), "job", ready_seconds=60.0),)
