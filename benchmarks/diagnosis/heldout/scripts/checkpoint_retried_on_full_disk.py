"""The checkpoint does not fit (a file may have so many bytes only); the writer removes the rest and tries again for ever."""

import os
import resource
import signal
import tempfile
import time

import torch
import torch.distributed as dist


def save(state: dict, folder: str, step: int) -> None:
    path = os.path.join(folder, f"{step}.pt")
    while True:
        try:
            with open(path + ".part", "wb") as file:
                torch.save(state, file)
            os.replace(path + ".part", path)
            return
        except (OSError, RuntimeError) as error:
            os.unlink(path + ".part")
            print(f"checkpoint {step} failed ({type(error).__name__}); trying again", flush=True)
            time.sleep(2)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, resource.RLIM_INFINITY))
    state = {"w": torch.zeros(1000), "moments": []}
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, 10_000):
            dist.all_reduce(torch.rand(10))
            state["moments"].append(torch.zeros(20_000))
            time.sleep(0.1)
            if rank == 2 and step % 15 == 0:
                save(state, folder, step)
                os.unlink(os.path.join(folder, f"{step}.pt"))


main()
