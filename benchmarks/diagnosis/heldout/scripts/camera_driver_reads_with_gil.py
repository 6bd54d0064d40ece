"""A device driver, bound through ctypes without releasing the interpreter lock, reads from a device that is silent."""

import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist

driver = ctypes.PyDLL(None, use_errno=True)
driver.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]


class Camera:
    def __init__(self) -> None:
        self.device, self.wire = os.pipe()
        self.frame = ctypes.create_string_buffer(256)

    def expose(self, frames: int) -> None:
        for number in range(frames):
            os.write(self.wire, bytes([number % 256]) * 256)

    def grab(self) -> torch.Tensor:
        driver.read(self.device, self.frame, 256)
        return torch.tensor(list(self.frame.raw), dtype=torch.float32)


def watch_temperature() -> None:
    while True:
        time.sleep(0.5)


dist.init_process_group("gloo")
rank = dist.get_rank()
camera = Camera()
threading.Thread(target=watch_temperature, daemon=True).start()
camera.expose(35 if rank == 2 else 180)
for step in range(180):
    frame = camera.grab()
    dist.all_reduce(frame)
    if rank == 0:
        print(f"frame {step}: {frame.mean():.1f}", flush=True)
    time.sleep(0.1)
