"""A plain PyTorch DDP script: it learns handwritten digits and knows nothing of elastic-run.

Start it with torchrun or with elastic-run; the command line is the same:

    elastic-run --nnodes=1:4 --nproc-per-node=2 examples/digits_ddp.py --epochs 20 --checkpoint /tmp/digits.pt

It does what every script that wants to survive a restart does: rank 0 saves a checkpoint now and then, under another
name first, and every start loads the last one. With --fail a worker kills itself once.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="records per rank and step")
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"))
    parser.add_argument("--save-every", type=int, default=5, help="steps between two checkpoints")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="pretend that a step takes at least this long")
    parser.add_argument("--fail", action="store_true", help="rank 1 kills itself once, after 30 steps")
    return parser.parse_args()


def data() -> tuple[TensorDataset, torch.Tensor, torch.Tensor]:
    """1,797 pictures of 8 x 8 pixels, four fifths of them to train on; the rest to test with."""
    digits = load_digits()
    pixels = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(pixels[~test], labels[~test]), pixels[test], labels[test]


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, step: int) -> None:
    """Rank 0 writes the checkpoint; the rename makes it whole or absent."""
    if dist.get_rank() == 0:
        part = path.with_suffix(f".{os.getpid()}.part")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
        torch.save(state, part)
        part.rename(path)


def main() -> None:
    options = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    fails = options.fail and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    torch.manual_seed(0)
    train, test_pixels, test_labels = data()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    epoch, step = 0, 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epoch, step = state["epoch"], state["step"]
    if rank == 0:
        print(f"begins at epoch {epoch}, step {step}, with {world} ranks", flush=True)

    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=options.batch_size, sampler=sampler)
    while epoch < options.epochs:
        sampler.set_epoch(epoch)
        losses: list[float] = []
        for pixels, labels in loader:
            began = time.monotonic()
            loss = nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            if fails and step == 30:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % options.save_every == 0:
                save(options.checkpoint, model, optimizer, epoch, step)
            time.sleep(max(0.0, options.step_seconds - (time.monotonic() - began)))
        epoch += 1
        save(options.checkpoint, model, optimizer, epoch, step)
        if rank == 0:
            print(f"epoch {epoch}/{options.epochs}: loss {sum(losses) / len(losses):.3f}, step {step}", flush=True)

    with torch.no_grad():
        accuracy = (model.module(test_pixels).argmax(dim=1) == test_labels).float().mean().item()
    if rank == 0:
        print(f"accuracy on {len(test_labels)} unseen digits: {100 * accuracy:.1f} %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
