"""What the scripts that count have in common: how they are told to end, and how they write a checkpoint.

The job goes on in its last epoch only when the test lets it, so that no fault comes too late. Until then each step
takes a while, and afterwards none does. A worker that waits there makes steps as well, for a test that counts them.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any  # what a checkpoint holds

from failpoint import reached

import elastic_run

if TYPE_CHECKING:
    import torch

FINISH = Path("finish")
CHECKPOINT = Path("counts.pt")
IDLE = Path("idle")
"""As many bytes as there were steps of waiting."""

STEP_SECONDS = 0.015


def may_finish() -> bool:
    """The last epoch may begin."""
    return FINISH.exists()


def pause() -> None:
    """What a step costs."""
    if not may_finish():
        time.sleep(STEP_SECONDS)


def waited() -> None:
    """Another step of waiting for the last epoch."""
    with IDLE.open("ab", buffering=0) as idle:
        idle.write(b".")


def tell(step: int) -> None:
    """The test counts what is told here."""
    idle = IDLE.stat().st_size if IDLE.exists() else 0
    print(f"step {step + idle}", flush=True)


def load() -> dict[str, Any] | None:
    """The last checkpoint."""
    import torch  # here, because workers that write outputs do without

    return torch.load(CHECKPOINT, weights_only=True) if CHECKPOINT.exists() else None


def save(state: dict[str, Any], step: int) -> None:
    """Replaces the checkpoint, if this worker's round is the job's."""
    import torch

    part = CHECKPOINT.with_suffix(f".{elastic_run.context().round}-{os.getpid()}.part")
    torch.save(state, part)
    if not elastic_run.is_current_round():
        part.unlink()
        return
    reached("between a checkpoint and its rename")
    part.rename(CHECKPOINT)
    tell(step)


def times(counts: "torch.Tensor") -> str:
    """For the test, at the end."""
    return f"each record was trained on {sorted(set(counts.tolist()))} times"
