"""Where a process asks for leases: its agent, or itself where it is alone."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ...master.data.shard import ShardsError
from .context import AGENT, context


class NoLedger(ShardsError, RuntimeError, public=True):
    """There are several ranks, or a launcher that says too little, and no ledger that all of them could ask."""


@dataclass(frozen=True, slots=True)
class Client:
    """Where a process asks; `agent` is empty where the ledger is in the process itself."""

    agent: str
    round: int
    rank: int
    size: int


def client_of(environment: Mapping[str, str] | None) -> Client:
    """Raises NoLedger, BadEnvironment."""
    given = os.environ if environment is None else environment
    here = context(given)
    agent = given.get(AGENT, "")
    if agent and not here.round:
        raise NoLedger(
            f"the environment has {AGENT}, but not the rank and the round of this process: leave RANK, WORLD_SIZE, "
            "ELASTIC_RUN_ROUND and the others as elastic-run sets them"
        )
    if here.round and not agent:
        raise NoLedger(
            f"the environment has no {AGENT}, so this worker cannot lease shards: leave it as elastic-run sets it, "
            "or look for the launcher's line about its socket"
        )
    if here.world_size > 1 and not agent:
        raise NoLedger(
            f"{here.world_size} ranks share the data, and their launcher keeps no ledger of it: start the script with "
            "elastic-run, which takes torchrun's arguments; or start one process alone"
        )
    return Client(agent, here.round, here.rank, here.world_size)
