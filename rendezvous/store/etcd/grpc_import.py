"""Imports grpc without the handlers that it would run at each fork of this process.

They are for children that go on to use grpc, and no process of ours has such. While a connection is open they end one
child in four, by SIGABRT or SIGSEGV, before it has done anything (grpc 1.85): a loader's worker of a script that has
asked a store, say. Where grpc was imported before, or GRPC_ENABLE_FORK_SUPPORT is set, all is as whoever did that wants
it.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"


@contextmanager
def _no_fork_handlers() -> Generator[None]:
    """grpc reads the variable when it is imported; what is started from here on does not inherit it."""
    if _FORK_SUPPORT in os.environ:
        yield
        return
    os.environ[_FORK_SUPPORT] = "0"
    try:
        yield
    finally:
        del os.environ[_FORK_SUPPORT]


with _no_fork_handlers():
    import grpc as _grpc
    import grpc.aio as _aio

# Any: it ships no types, and what type checkers bring of it lags behind
grpc = cast(Any, _grpc)
aio = cast(Any, _aio)
