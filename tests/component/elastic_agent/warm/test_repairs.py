"""What a repair does beside threads that run."""

import ctypes
import hashlib
import sys
import threading
from types import SimpleNamespace

import pytest

from elastic_run.elastic_agent.warm.repairs import REPAIRS

PR_SET_NAME = 15


def test_a_process_group_is_ended_when_the_threads_of_gloo_have_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed.distributed_c10d", raising=False)
    order: list[str] = []
    running = threading.Event()
    module = SimpleNamespace(destroy_process_group=lambda: order.append("ended"), is_initialized=lambda: False)
    REPAIRS["torch.distributed"](module)

    def gloo() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_gloo_runloop", 0, 0, 0)
        running.set()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # longer than any fixed pause, and without Python's lock
        order.append("let go")

    thread = threading.Thread(target=gloo)
    thread.start()
    running.wait()
    module.destroy_process_group()
    thread.join()
    assert order == ["let go", "ended"]
