"""`elastic-run --explain-preload`: what workers are forked with, and why they import the rest by themselves."""

import asyncio
import os
import time

from ...elastic_agent.processes.reaper import Reaper
from ...elastic_agent.zygotes.choice import Zygotes
from ..early import never_warm, recipe, worker_settings
from ..settings import Options


def main(options: Options) -> int:
    """Makes the warm interpreter that a run of this command would begin with, prints what is in it, and ends it."""
    return asyncio.run(_explain(options))


async def _explain(options: Options) -> int:
    workers = worker_settings(options, os.environ)
    made = recipe(options, workers)
    if made is None:
        print(f"nothing is imported ahead: {never_warm(options, workers.inherited)}; each worker is a fresh process")
        return 0
    reaper = Reaper()
    reaper.start()
    zygotes = Zygotes(made.tagged("explain"), print)
    begun = time.monotonic()
    try:
        zygotes.start()
        await zygotes.settled()
        seconds = time.monotonic() - begun
        account, why = zygotes.account, zygotes.why
    finally:  # also at Ctrl-C: an import that hangs does not end by itself
        await zygotes.close()
        reaper.close()
    if why:
        print(f"nothing is imported ahead: {why}; each worker is a fresh interpreter")
        return 0
    print(
        f"imported ahead for the workers ({account.modules} modules, {seconds:.1f} s, once for all workers of a node):"
    )
    for name in account.imported or ["nothing"]:
        print(f"  {name}")
    for name, reason, where in account.refused:
        print(f"each worker imports {name} itself{f' ({where})' if where else ''}: {reason}")
    leading = [where for _, _, where in account.refused if where]
    if options.preload is None:
        print("--preload=none is given")
    elif leading:
        print("later imports of the script are not imported ahead, because this import could change them")
    elif account.ended[0]:
        where, what = account.ended
        print(f"imports after {where} are not imported ahead, because {what} could change them")
    return 0
