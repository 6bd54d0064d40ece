"""Who removes what dead processes have left in shared memory, by its command line."""

import pytest

from elastic_run.elastic_agent.processes.guardian import is_manager, is_tracker

PYTHON = b"/usr/bin/python3"


@pytest.mark.parametrize(
    ("words", "tracks", "manages"),
    [
        ([PYTHON, b"-c", b"from multiprocessing.resource_tracker import main;main(11)"], True, False),
        ([PYTHON, b"-E", b"-s", b"-c", b"from multiprocessing.resource_tracker import main;main(7)"], True, False),
        ([PYTHON, b"-c", b"from joblib.externals.loky.backend.resource_tracker import main; main(4, 0)"], True, False),
        ([b"torch_shm_manager"], False, True),
        ([PYTHON, b"-c", b"from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9)"], False, False),
        ([PYTHON, b"-c", b"from multiprocessing.forkserver import main; main(9, 10, ['__main__'])"], False, False),
        ([PYTHON, b"train.py", b"from multiprocessing.resource_tracker import main;main(11)"], False, False),
        ([b"grep", b"-c", b"resource_tracker", b"log"], False, False),
        ([b"/bin/grep", b"torch_shm_manager"], False, False),
        ([PYTHON, b"-c"], False, False),
        ([], False, False),
    ],
)
def test_trackers_and_managers_of_shared_memory_are_known(words: list[bytes], tracks: bool, manages: bool) -> None:
    assert (is_tracker(words), is_manager(words)) == (tracks, manages)
