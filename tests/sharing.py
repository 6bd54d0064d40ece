"""What the tests of one folder share, and what ends with the last of them.

A fixture of the session ends with the last test of all: servers that nobody asks any more take processors from others.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

T = TypeVar("T")


def share_in_folder(
    request: pytest.FixtureRequest, key: pytest.StashKey[T], begin: Callable[[], AbstractContextManager[T]]
) -> T:
    """What `begin` has begun for an earlier test of this folder, or begins; for a fixture of a module.

    It ends where the next test that this process runs is of another folder.
    """
    folder = next(node for node in request.node.iter_parents() if isinstance(node, pytest.Dir))
    if key not in folder.stash:
        context = begin()
        folder.stash[key] = context.__enter__()

        def end() -> None:
            del folder.stash[key]
            context.__exit__(None, None, None)

        folder.addfinalizer(end)
    return folder.stash[key]
