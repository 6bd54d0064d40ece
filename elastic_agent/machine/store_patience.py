"""How long a node waits for a store that does not answer (pure)."""

from ...rendezvous.store.contract import Health
from ...rendezvous.store.waits import Wait
from .node_state import LocalWorkers


def store_gone(
    health: Health,
    wait: Wait | None,
    workers: LocalWorkers,
    *,
    idle_since: float,
    patience: float,
    now: float,
) -> str:
    """Why this node waits no longer for the store, in words; empty where it does.

    Args:
        health: of the store.
        wait: what has waited for it for the longest time.
        workers: the node's.
        idle_since: since when no worker runs, or one has failed. The node's patience begins then.
        patience: seconds.
        now: the agent's clock, seconds.
    """
    ended_at = 0.0 if workers.alive and not workers.failed else idle_since
    if not health.reachable and now - max(health.since, ended_at) > patience:
        why = f"the store has not answered for {now - health.since:.0f} s ({health.detail})"
        mend = "Start the store again (its machine may be lost)"
    elif wait and now - max(wait.since, ended_at) > patience:
        why, mend = wait.words(now), "Repair the store"
    else:
        return ""
    ended = workers.total > 0 and len(workers.exits) == workers.total and not workers.failed
    how = "have all ended with exit code 0" if ended else "are not running"
    return f"{why}, and this node's workers {how}. {mend}, then start this command again"
