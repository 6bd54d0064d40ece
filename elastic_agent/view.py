"""What a node knows at one moment, put together for `plan` (pure)."""

from collections.abc import Sequence

from ..rendezvous.member import Exit
from ..rendezvous.store.contract import Health
from ..rendezvous.store.waits import Wait
from . import plan
from .facts import Facts, Setup
from .workers.worker_group import WorkerGroup


def look(
    setup: Setup,
    facts: Facts,
    workers: WorkerGroup,
    store_gone: str,
    *,
    leading: bool,
    now: float,
) -> plan.View:
    """The state of affairs.

    Args:
        setup: what the agent is started with.
        facts: what it has heard.
        workers: this node's.
        store_gone: see `store_gone`.
        leading: the job's master runs here.
        now: the agent's clock, seconds.
    """
    known = facts.known
    return plan.View(
        notice=facts.notice,
        notice_signal=facts.notice_signal,
        notice_age=now - facts.notice_at,
        gives_way=facts.gives_way,
        left_out_overdue=facts.workers_gone_at is not None and now - facts.workers_gone_at > plan.FAREWELL_PATIENCE,
        registered=facts.registration is not None and not facts.lapsed,
        lapsed=facts.lapsed,
        stood_still=facts.stood_still or now - facts.beat_at > setup.lease_ttl,
        refusal=facts.refusal,
        orphaned=facts.orphaned,
        stale=known.stale,
        header=known.header,
        assignment=known.assignment,
        assigned=known.assigned,
        round=facts.round,
        role=facts.role,
        alive=workers.alive,
        total=facts.total,
        exits=workers.exits if facts.round else (),
        saved=facts.saved,
        leases=facts.leases,
        stalled=facts.stalled,
        strained=facts.strained,
        late=facts.late,
        problem=facts.problem,
        service=workers.service_failure,
        lingers=workers.lingers,
        unfit=facts.unfit,
        leading=leading,
        told=facts.told,
        staying=len(workers.staying),
        holding=len(workers.holding),
        done=len(workers.done),
        waiting=len(workers.waiting),
        forming=len(workers.forming),
        stranded=workers.stranded(now),
        slowest=workers.slowest,
        header_age=now - known.seen_at,
        gentle=known.gentle,
        keeps=facts.keeps,
        outside=(facts.outside or facts.keeps) and not setup.terms.policy.roles,
        standby=setup.workers.adapter.standby,
        unready=facts.unready,
        store_gone=store_gone,
        shutdown_timeout=setup.shutdown_timeout,
        grace_after_failure=setup.grace_after_failure,
    )


def store_gone(
    health: Health,
    wait: Wait | None,
    exits: Sequence[Exit],
    *,
    alive: int,
    total: int,
    idle_since: float,
    patience: float,
    now: float,
) -> str:
    """Why this node waits no longer for the store, in words; empty where it does. See `plan.View`.

    Args:
        health: of the store.
        wait: what has waited for it for the longest time.
        exits: how workers have ended.
        alive, total: workers that live, and that there were.
        idle_since: since when no worker runs, or one has failed. The node's patience begins then.
        patience: seconds.
        now: the agent's clock, seconds.
    """
    well = all(exit_.ok for exit_ in exits)
    ended_at = 0.0 if alive and well else idle_since
    if not health.reachable and now - max(health.since, ended_at) > patience:
        why = f"the store has not answered for {now - health.since:.0f} s ({health.detail})"
        mend = "Start the store again (its machine may be lost)"
    elif wait and now - max(wait.since, ended_at) > patience:
        why, mend = wait.words(now), "Repair the store"
    else:
        return ""
    ended = total > 0 and len(exits) == total and well
    workers = "have all ended with exit code 0" if ended else "are not running"
    return f"{why}, and this node's workers {workers}. {mend}, then start this command again"
