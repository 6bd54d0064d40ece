"""Joins this worker to the other processes of JAX, and has it end at once where its script has failed."""

import atexit
import logging
import os
import sys
from types import TracebackType
from typing import Any

import jax

from ..client.context import BadEnvironment, Context, context
from .adapter import ADDRESS


def initialize(**options: Any) -> Context:  # Any: JAX's own arguments
    """Calls `jax.distributed.initialize` with what the launcher says; does nothing where there is no launcher.

    After an uncaught exception the process ends at once, as any other program does. JAX alone has it wait at its exit
    until all other processes end as well, or for `shutdown_timeout_seconds`, and they wait for it.

    Args:
        **options: others of `jax.distributed.initialize`, such as `local_device_ids` or `heartbeat_timeout_seconds`.

    Returns:
        this worker's rank and world size.

    Raises:
        elastic_run.exceptions.BadEnvironment: the workers were not started with `--framework=jax`.
    """
    found = context()
    if "WORLD_SIZE" not in os.environ:
        return found
    if ADDRESS not in os.environ:
        raise BadEnvironment(
            f"the environment has WORLD_SIZE={found.world_size} but no {ADDRESS}: start the job with --framework=jax"
        )
    initialize: Any = jax.distributed.initialize  # Any: not all of its arguments have types
    initialize(**options)
    _end_at_once_after_an_exception()
    return found


def _end_at_once_after_an_exception() -> None:
    raised = False
    before = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        nonlocal raised
        raised = True
        before(kind, error, trace)

    def leave() -> None:
        if raised:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    sys.excepthook = note
    atexit.register(leave)  # runs before JAX's own, which was registered when it was imported
