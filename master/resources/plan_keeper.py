"""Keeps the plan of a job up to date while its master leads it."""

import asyncio
from collections.abc import Callable

from ...rendezvous.base.plural import plural
from ...rendezvous.node_reasons import cut
from ..machine.controller import Controller, Terms
from ..machine.events import Planned
from ..machine.pace import Stepped
from .planners import SizeChoice, load
from .sizing import JobNow, Sizing

EACH = 1.0
"""Seconds between two looks."""


class PlanKeeper:
    """One leadership's. It begins with the nodes that the job has.

    Args:
        terms: what the job was started with.
        controller: the job's.
        say: prints one line for a person.
        tell: has the controller know of each plan, the first included.
    """

    def __init__(
        self, terms: Terms, controller: Controller, say: Callable[[str], None], tell: Callable[[Planned], object]
    ) -> None:
        policy, has = terms.policy, len(controller.round.current.nodes)
        sizes = range(policy.usable_minimum, policy.max_nodes + 1, policy.node_unit)
        self._controller = controller
        self._say, self._tell_controller = say, tell
        self._sizing = Sizing(load(terms.plan), sizes, max(has, policy.usable_minimum))
        self._publish_plan(self._sizing.plan)

    def count_steps(self, told: Stepped, now: float) -> None:
        """Rank 0 has told how many steps it has made."""
        self._sizing.count_steps(told, now)

    async def keep_plan(self, now: Callable[[], float], changed: Callable[[], None]) -> None:
        """Revises it again and again, until cancelled, or its algorithm fails.

        Args:
            now: the master's clock.
            changed: called when the controller has to look again.
        """
        while True:
            await asyncio.sleep(EACH)
            try:
                plan = self._sizing.revise(self._find_job(now()))
            except Exception as error:  # noqa: BLE001  code of a package: the job trains on with what it has
                has = self._sizing.plan.nodes
                self._publish_plan(SizeChoice(has, f"{plural(has, 'node')}: the plan has failed: {cut(repr(error))}"))
                return changed()
            if plan is not None:
                self._publish_plan(plan)
                changed()

    def _publish_plan(self, plan: SizeChoice) -> None:
        self._say(f"the job's plan: {plan.why}")
        self._tell_controller(Planned(plan.nodes, plan.why))

    def _find_job(self, now: float) -> JobNow:
        current, training = self._controller.round, self._controller.training(now)
        nodes = len(current.current.nodes) if current.running else 0
        workers = current.assigned[0].world_size if nodes and current.assigned else 0
        repeated = training.repeated
        return JobNow(now, current.number, nodes, workers, training.running, repeated, training.in_place)
