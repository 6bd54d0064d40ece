"""A real control plane for the tests of this folder, and machines that run pods as processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..sharing import share_in_folder
from .control_plane import FOLDER_VARIABLE, ControlPlane, missing
from .jobs import ElasticJobs, Jobs
from .process_kubelet import Kubelet

PLANE = pytest.StashKey[ControlPlane]()
OPERATED = pytest.StashKey[ElasticJobs]()

LEFT_OPEN = "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
"""urllib3 leaves a socket to the garbage collector whose handshake timed out, as with an API server that is killed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An API server is killed here, on machines that are busy."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings(LEFT_OPEN))


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """One for all tests, each of which has a namespace of its own. A test that hurts it has another."""
    return share_in_folder(request, PLANE, lambda: start_plane(tmp_path_factory))


@contextmanager
def start_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own; skips the test where there can be none, and fails it where a certain one was asked for."""
    if why := missing():
        (pytest.fail if os.environ.get(FOLDER_VARIABLE) else pytest.skip)(why)
    if os.getuid() != 0:
        pytest.skip("a pod's processes have namespaces of their own: this needs root")
    with ControlPlane(tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
def jobs(plane: ControlPlane, tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(plane, tmp_path)
    yield made
    made.close()


@pytest.fixture
def machine(jobs: Jobs) -> Iterator[Kubelet]:
    with jobs.machine() as made:
        yield made


@contextmanager
def operate(plane: ControlPlane, folder: Path) -> Iterator[ElasticJobs]:
    """A namespace with an operator, and a machine."""
    made = ElasticJobs(plane, folder)
    with made.machine(cpu=16):
        yield made


@pytest.fixture(scope="module")
def operated(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> ElasticJobs:
    """One for all tests of jobs that are applied."""
    return share_in_folder(request, OPERATED, lambda: operate(plane, tmp_path_factory.mktemp("operated")))


@pytest.fixture
def elastic_jobs(operated: ElasticJobs, tmp_path: Path) -> Iterator[ElasticJobs]:
    operated.folder, operated.release_file = tmp_path, tmp_path / "release"
    yield operated
    operated.close()
