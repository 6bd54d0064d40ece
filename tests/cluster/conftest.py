"""A real control plane for the tests of this folder, and machines that run pods as processes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .control_plane import ControlPlane, missing

LEFT_OPEN = "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
"""urllib3 leaves a socket to the garbage collector whose handshake timed out, as with an API server that is killed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An API server is killed here, on machines that are busy."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings(LEFT_OPEN))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One for all tests of a module: each has a namespace of its own."""
    if why := missing():
        pytest.skip(why)
    if os.getuid() != 0:
        pytest.skip("a pod's processes have namespaces of their own: this needs root")
    with ControlPlane(tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For a test's scripts; pods see it as it is."""
    return tmp_path
