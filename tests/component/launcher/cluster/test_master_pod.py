"""What the master's pod does beside the job's control."""

import asyncio

import pytest

from benchmarks.cluster.clock import run
from elastic_run.launcher.cluster.master_pod import AGAIN, supervised


@pytest.mark.parametrize("ends", [KeyError("unforeseen"), None], ids=["an error", "without one"])
def test_a_task_that_ends_is_said_and_begins_again(ends: Exception | None) -> None:
    said: list[str] = []
    begun: list[float] = []

    async def work() -> None:
        begun.append(round(asyncio.get_running_loop().time(), 3))
        if len(begun) < 3:
            if ends is not None:
                raise ends
            return
        await asyncio.sleep(1e9)

    async def story() -> None:
        task = asyncio.create_task(supervised("writing the job's status", work, said.append))
        await asyncio.sleep(10 * AGAIN)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story)
    assert begun == [0.0, AGAIN, 2 * AGAIN]
    why = repr(ends) if ends else "without a reason"
    assert said == [f"writing the job's status ended: {why}; beginning again in {AGAIN:g} s"] * 2
