"""Digits with Horovod, in its own elastic API: nothing here is elastic-run's.

    elastic-run --framework=horovod --standalone --nproc-per-node=2 examples/digits_horovod.py

No `horovodrun` and no discovery script. When a worker or a machine is lost, the others keep their process and continue
from the last commit; a new worker gets the state from rank 0. With --fail a worker kills itself once.
"""

import argparse
import os
import signal

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn

BATCH, EVERY = 32, 10
"""Records per rank and step; steps between two commits."""


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """1,797 pictures of 8 x 8 pixels, four fifths of them to train on; the rest to test with."""
    digits = load_digits()
    pixels = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 5 == 0
    return pixels[~test], labels[~test], pixels[test], labels[test]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fail", action="store_true", help="rank 1 kills itself once, after 100 steps")
    options = parser.parse_args()
    first = os.environ.get("ELASTIC_RUN_RESTART_COUNT", "0") == "0"  # no worker has failed yet
    hvd.init()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pixels, labels, test_pixels, test_labels = data()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), named_parameters=model.named_parameters()
    )

    @hvd.elastic.run
    def learn(state: hvd.elastic.TorchState) -> None:
        """Called again after each change of the workers, with the last commit."""
        if hvd.rank() == 0:
            print(f"begins at step {state.step} with {hvd.size()} ranks", flush=True)
        while state.step < options.steps:
            if options.fail and state.step == 105 and hvd.rank() == 1 and first:
                os.kill(os.getpid(), signal.SIGKILL)
            chosen = torch.randint(
                len(pixels), (BATCH,), generator=torch.Generator().manual_seed(state.step * 64 + hvd.rank())
            )
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels[chosen]), labels[chosen]).backward()
            optimizer.step()
            state.step += 1
            if state.step % EVERY == 0:
                state.commit()

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
    learn(state)
    with torch.no_grad():
        accuracy = (model(test_pixels).argmax(dim=1) == test_labels).float().mean().item()
    if hvd.rank() == 0:
        print(f"accuracy on {len(test_labels)} unseen digits: {100 * accuracy:.1f} %", flush=True)


if __name__ == "__main__":
    main()
