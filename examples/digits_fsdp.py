"""Fully sharded training (FSDP2): every rank holds a part of the model, and a restart may have another number of ranks.

    elastic-run --nnodes=1:4 --nproc-per-node=2 examples/digits_fsdp.py --checkpoint /tmp/digits-fsdp

Checkpoints are PyTorch's distributed ones: each rank writes its part, and the parts are dealt out anew when they are
loaded. With --fail a worker kills itself once.
"""

import argparse
import os
import shutil
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """All ranks write into a new folder, which gets its name when it is whole."""
    part = folder.with_name(f"{folder.name}.part")
    if dist.get_rank() == 0:
        shutil.rmtree(part, ignore_errors=True)
    dist.barrier()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "step": torch.tensor(step)}, checkpoint_id=part)
    dist.barrier()
    if dist.get_rank() == 0:
        old = folder.with_name(f"{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
    dist.barrier()


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step that was saved last, or 0. Between the two renames of `save` the older folder counts."""
    old = folder.with_name(f"{folder.name}.old")
    found = folder if folder.exists() else old
    if not found.exists():
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": torch.tensor(0)}
    dcp.load(state, checkpoint_id=found)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits-fsdp"))
    parser.add_argument("--fail", action="store_true", help="rank 1 kills itself once, at half of the steps")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    fails = options.fail and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

    digits = load_digits()
    pixels = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    test = torch.arange(len(labels)) % 5 == 0
    train_pixels, train_labels = pixels[~test], labels[~test]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    total = sum(parameter.numel() for parameter in model.parameters())
    print(f"rank {rank} holds {held} of {total} weights", flush=True)
    step = load(options.checkpoint, model, optimizer)
    if rank == 0:
        print(f"begins at step {step} with {world} ranks", flush=True)

    while step < options.steps:
        # The global batch is the same at any number of ranks: each takes every world-th record of it.
        batch = torch.randperm(len(train_labels), generator=torch.Generator().manual_seed(step))[:256][rank::world]
        loss = nn.functional.cross_entropy(model(train_pixels[batch]), train_labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if fails and rank == 1 and step == options.steps // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % 10 == 0:
            save(options.checkpoint, model, optimizer, step)

    with torch.no_grad():
        right = (model(pixels[test]).argmax(dim=1) == labels[test]).float().mean().item()
    if rank == 0:
        print(f"accuracy on {int(test.sum())} unseen digits: {100 * right:.1f} %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
