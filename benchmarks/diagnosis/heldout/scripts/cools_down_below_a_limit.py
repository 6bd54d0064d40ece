"""Rank 1 reads a temperature from a file, and takes short naps until the machine has cooled down."""

import pathlib
import tempfile
import threading
import time

import torch
import torch.distributed as dist


def fan(sensor: pathlib.Path, celsius: float) -> None:
    while celsius > 60:
        celsius -= 1.5
        time.sleep(0.6)
        sensor.write_text(f"{celsius:.1f}")


def hot(sensor: pathlib.Path, limit: float = 65.0) -> bool:
    text = sensor.read_text()
    return not text or float(text) > limit


dist.init_process_group("gloo")
rank = dist.get_rank()
sensor = pathlib.Path(tempfile.mkdtemp()) / "temp1_input"
sensor.write_text("50.0")
naps = 0
for step in range(55):
    if rank == 1 and step == 40:
        sensor.write_text("97.0")
        threading.Thread(target=fan, args=(sensor, 97.0)).start()
    while hot(sensor):
        time.sleep(0.5)
        naps += 1
    matrix = torch.rand(30, 30)
    dist.all_reduce(matrix @ matrix)
    time.sleep(0.1)
    if step % 9 == 0:
        print(f"rank {rank} step {step} naps {naps}", flush=True)
dist.destroy_process_group()
