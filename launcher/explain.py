"""`elastic-run --explain-preload`: what workers are forked with, and why they import the rest by themselves."""

import asyncio
import os
import sys
import time
from pathlib import Path

from ..elastic_agent import preload
from ..elastic_agent.reaper import Reaper
from ..elastic_agent.warm.step import Step
from ..elastic_agent.zygotes import Zygotes
from .early import never_warm, recipe
from .settings import Options


def main(options: Options) -> int:
    """Makes the warm interpreter that a run of this command would begin with, prints what is in it, and ends it."""
    return asyncio.run(_explain(options))


async def _explain(options: Options) -> int:
    made = recipe(options, os.environ, "")
    if made is None:
        _print(f"nothing is imported ahead: {never_warm(options, os.environ)}; each worker is a fresh process")
        return 0
    known = preload.load(preload.cache_file(made, os.environ, Path.cwd()))
    reaper = Reaper()
    reaper.start()
    zygotes = Zygotes(made.tagged("explain"), cwd=None, say=_print)
    begun = time.monotonic()
    try:
        zygotes.start()
        await zygotes.settled()
        seconds = time.monotonic() - begun
        account, why = zygotes.account, zygotes.why
    finally:  # also at Ctrl-C: an import that hangs does not end by itself
        await zygotes.close(save=False)
        reaper.close()
    if why:
        _print(f"nothing is imported ahead: {why}; each worker is a fresh interpreter")
        return 0
    _print(
        f"what workers find imported ({account.modules} modules, {seconds:.1f} s, once for all workers of a node), "
        + (
            "as an earlier run has learnt:"
            if known
            else "as the script begins with it; a first run will learn the rest:"
        )
    )
    for text in account.imported or ["nothing"]:
        step = Step(text)
        changes = [name if value is None else f"{name}={value}" for name, value in step.environment.items()]
        changed = ", ".join(changes if step.path is None else [*changes, "sys.path"])
        _print(f"  {step.name}" + (f" (the script has set {changed})" if changed else ""))
    if until := account.refused or (known and known.until):
        name, reason = until
        _print(f"what workers import by themselves: {name} and all after it ({reason})")
    elif known and not known.complete:
        _print("there may be more: no run has lasted half a minute yet after its last import")
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
