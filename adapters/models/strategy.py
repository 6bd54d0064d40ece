"""How a model is trained, by what it has (pure)."""

from collections.abc import Sequence


def describe_strategy(workers: int, numbers: int, tables: Sequence[str], *, launched: bool) -> str:
    """Which way, and why, for a person.

    Args:
        workers: ranks in this round.
        numbers: of the module's own parameters.
        tables: the names of its `elastic_run.torch.Embedding`s.
        launched: by elastic-run, and so their rows are on the job's servers.
    """
    own = f"{numbers:,} numbers"
    together = f"{workers} workers add up their gradients of its {own} in each step (AllReduce)"
    if tables:
        rows = f"the rows of {', '.join(tables)}"
        if not launched:
            return f"in one process, with {rows} in it: there is no launcher"
        if workers == 1 or not numbers:
            return f"asynchronously: {rows} are on servers, because the model has elastic_run.torch.Embedding"
        return (
            f"asynchronously where the model has elastic_run.torch.Embedding: each worker pushes its gradients of "
            f"{rows} to servers; and {together}"
        )
    if workers == 1:
        return f"in one process: the job has one worker, and the model's {own} fit into it"
    return f"in lockstep: {together}, because it has no elastic_run.torch.Embedding"
