"""An adapter for a framework that does not exist: all that a file of your own has to hold.

The workers of "tiny" meet at TINY_MEET. Each has a number, TINY_ID, and whoever loses another raises a TinyError.
`elastic-run --framework=examples/tiny_adapter.py:Tiny train.py` starts them. With these lines in the `pyproject.toml`
of a package that is installed beside elastic-run, `--framework=tiny` does. See docs/adapters.md.

    [project.entry-points."elastic_run.adapters"]
    tiny = "tiny_adapter:Tiny"
"""

from collections.abc import Mapping

from elastic_run.adapters.contract import Hint, ImportsAhead, Round, Worker
from elastic_run.adapters.imports_ahead import Package
from elastic_run.adapters.plain import Plain


class Tiny(Plain):
    """Tells tiny's workers where they meet."""

    name = "tiny"
    port = "TINY_MEET"
    per_worker = frozenset(["TINY_MEET", "TINY_ID", "TINY_SIZE"])
    imports_ahead = ImportsAhead(packages=(Package("tiny", "tiny", ("1.0", "1.2")),))
    consequences = (*Plain.consequences, r"TinyError: .* went away")
    hints = (Hint(r"TinyError: .* wants \d+ threads", "set TINY_THREADS to that number"),)

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """What tiny reads when it is imported."""
        variables: dict[str, str | None] = {
            "TINY_MEET": f"{round.master_addr}:{round.master_port}",
            "TINY_ID": str(worker.rank),
            "TINY_SIZE": str(round.world_size),
            "TINY_JOB": round.job,
            "TINY_DEBUG": None,  # of the launcher's own shell: it is not for workers
        }
        if "TINY_THREADS" not in inherited:
            variables["TINY_THREADS"] = "1" if worker.local_world_size > 1 else "0"
        return variables
