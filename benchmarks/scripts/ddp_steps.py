"""A plain PyTorch DDP script, as every one that survives a restart: small steps, and a checkpoint every ten.

Called with a journal to append to and the checkpoint's name; where a third word is given, a rank raises once that file
followed by its number is there, and removes it. Into the journal each rank writes, in nanoseconds of the
machine's monotonic clock, when it got how far. Nothing in it knows which launcher started it.
"""

# torch annotates itself only in part:
# pyright: basic

import time

FIRST_LINE = time.monotonic_ns()

import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

IMPORTED = time.monotonic_ns()

STEP_SECONDS = 0.02
STEPS = 30_000  # ten minutes: an end, should nobody kill it
SAVE_EVERY = 10


def main(journal: str, checkpoint: Path, trouble: str = "") -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    joined = time.monotonic_ns()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    built = time.monotonic_ns()
    step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = int(state["step"])
    restored = time.monotonic_ns()

    # The ranks that met here are one generation; its name is the moment when rank 0 named it.
    named = torch.tensor([time.monotonic_ns()], dtype=torch.int64)
    dist.broadcast(named, src=0)
    generation = int(named.item())
    out = os.open(journal, os.O_WRONLY | os.O_APPEND)  # one write per line: lines of several ranks do not mix
    way = f"{FIRST_LINE} {IMPORTED} {joined} {built} {restored}"
    os.write(out, f"born {generation} {rank} {world} {os.getpid()} {way}\n".encode())
    while step < STEPS:
        began = time.monotonic()
        loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        os.write(out, f"step {generation} {rank} {world} {step} {time.monotonic_ns()}\n".encode())
        if step % SAVE_EVERY == 0 and rank == 0:
            part = checkpoint.with_suffix(f".{os.getpid()}.part")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
            part.rename(checkpoint)
        if trouble and (asked := Path(f"{trouble}{rank}")).exists():
            asked.unlink()
            os.write(out, f"raised {rank} {time.monotonic_ns()}\n".encode())
            raise RuntimeError("as the benchmark wants it")
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))  # as if there were more to compute
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
