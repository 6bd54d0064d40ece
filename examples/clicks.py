"""Clicks on adverts, by a factorization machine whose rows are on a parameter server. PyTorch, asynchronous workers.

    elastic-run --standalone --nproc-per-node=2 --servers=1 examples/clicks.py

Each record is a user, an advert and a hidden taste that decides about the click. Nobody says how many users there are:
a row is made when its id is first seen. With --fail a worker kills itself once; every record still counts once.
"""

import argparse
import os
import signal

import torch
from torch import Tensor, nn

import elastic_run
from elastic_run import servers
from elastic_run import torch as elastic

USERS, ADVERTS, TASTES = 5000, 500, 4


class Clicks(nn.Module):
    """How likely a user is to click an advert."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.user = elastic.Embedding("user", dim, servers.Adagrad(lr=0.1))
        self.advert = elastic.Embedding("advert", dim, servers.Adagrad(lr=0.1))

    def forward(self, users: Tensor, adverts: Tensor) -> Tensor:
        return (self.user(users) * self.advert(adverts)).sum(dim=1)


def records(indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Users, adverts and clicks of these records: made by their index alone, so that every worker can."""
    scattered = indices * 0x5851F42D4C957F2D + 0x14057B7EF767814F  # modulo 2**64
    users, adverts = (scattered >> 20) % USERS, (scattered >> 40) % ADVERTS
    draws = torch.Generator().manual_seed(0)
    tastes, kinds = torch.randn(USERS, TASTES, generator=draws), torch.randn(ADVERTS, TASTES, generator=draws)
    return users, adverts, ((tastes[users] * kinds[adverts]).sum(dim=1) > 0).float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--fail", action="store_true", help="a worker kills itself once, in its third shard")
    options = parser.parse_args()
    here = elastic_run.context()

    model, loss_of, steps = Clicks(dim=8), nn.BCEWithLogitsLoss(reduction="sum"), 0
    for shard in elastic_run.data.shards("clicks", options.records, shard_size=512, commit="ack"):
        users, adverts, clicks = records(torch.tensor(list(shard.indices)))
        loss_of(model(users, adverts), clicks).backward()
        if options.fail and here.rank == 0 and here.restart_count == 0 and steps == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        shard.done()
        steps += 1
    print(f"rank {here.rank} made {steps} steps", flush=True)
    if here.rank == 0:
        model.eval()
        users, adverts, clicks = records(torch.arange(10**7, 10**7 + 5000))
        right = ((model(users, adverts) > 0).float() == clicks).float().mean()
        print(f"right about {right:.1%} of {len(clicks)} other records", flush=True)


if __name__ == "__main__":
    main()
