"""A device library calls back from a native thread of its own after a while; the rank waits for the event it sets."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)
CALL_BACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Sigevent(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", CALL_BACK),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_char * 64),
    ]


class Itimerspec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("period", "period_ns", "first", "first_ns")]


class Recorder:
    """Records for some seconds by the device's own clock."""

    def __init__(self) -> None:
        self.full = threading.Event()
        self.call_back = CALL_BACK(lambda _: self.full.set())

    def record(self, seconds: int) -> None:
        timer = ctypes.c_void_p()
        event = Sigevent(None, 0, 2, self.call_back, None)
        if libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)):
            raise OSError(ctypes.get_errno(), "timer_create")
        libc.timer_settime(timer, 0, ctypes.byref(Itimerspec(0, 0, seconds, 0)), None)
        self.full.wait()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            Recorder().record(15)
    dist.destroy_process_group()


main()
