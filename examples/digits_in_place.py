"""Digits again, and no worker that lives ever starts again: a change of the nodes costs one broken collective.

    elastic-run --nnodes=1:4 --nproc-per-node=2 examples/digits_in_place.py --epochs 20 --checkpoint /tmp/digits.pt

Kill a worker or a node, stop one, start another: the others keep their process and their model, undo the step that was
under way, and continue with it. Each record is trained on once in every epoch. The checkpoint is for the day on which
all of them are lost at once. With --fail a worker kills itself once.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elastic_run import torch as elastic


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="records per rank")
    parser.add_argument("--global-batch", type=int, default=64, help="records per step, of all ranks")
    parser.add_argument("--checkpoint", type=Path, default=Path("digits-in-place.pt"))
    parser.add_argument("--save-every", type=int, default=100, help="steps between two checkpoints")
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


def save(path: Path, state: elastic.State) -> None:
    """Rank 0 writes the checkpoint; the rename makes it whole or absent."""
    if state.context.rank == 0:
        part = path.with_suffix(f".{os.getpid()}.part")
        names = ("model", "optimizer", "data")
        torch.save({name: getattr(state, name).state_dict() for name in names}, part)
        part.rename(path)


@elastic.run
def learn(state: elastic.State, options: argparse.Namespace, train: TensorDataset) -> None:
    """Called once for each process group; a later call goes on after the last commit."""
    model, sampler = state.ddp(), state.data
    loader = DataLoader(train, batch_sampler=sampler)
    fails = options.fail and state.context.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if state.context.rank == 0:
        print(f"a process group of {state.context.world_size} ranks, from step {state.step}", flush=True)
    while sampler.epoch < options.epochs:
        epoch, batches = sampler.epoch, iter(loader)
        while sampler.epoch == epoch:
            began = time.monotonic()
            state.optimizer.zero_grad()
            for weight in sampler.weights:
                pixels, labels = next(batches)
                (nn.functional.cross_entropy(model(pixels), labels) * weight).backward()
            state.optimizer.step()
            state.commit()
            if fails and state.step == 30:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % options.save_every == 0:
                save(options.checkpoint, state)
            time.sleep(max(0.0, options.step_seconds - (time.monotonic() - began)))
        if state.context.rank == 0:
            print(f"epoch {sampler.epoch}/{options.epochs}, step {state.step}", flush=True)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    train, test_pixels, test_labels = data()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = elastic.ElasticBatchSampler(
        len(train), options.batch_size, epochs=options.epochs, fixed_global_batch=options.global_batch
    )
    state = elastic.State(model=model, optimizer=optimizer, data=sampler)
    if options.checkpoint.exists():  # for the start, and where nobody is left who has more
        saved = torch.load(options.checkpoint, weights_only=True)
        for name, part in saved.items():
            getattr(state, name).load_state_dict(part)

    learn(state, options, train)

    with torch.no_grad():
        accuracy = (model(test_pixels).argmax(dim=1) == test_labels).float().mean().item()
    save(options.checkpoint, state)
    if state.context.rank == 0:
        print(f"accuracy on {len(test_labels)} unseen digits: {100 * accuracy:.1f} %", flush=True)


if __name__ == "__main__":
    main()
