"""Gossip training: after each round, pairs of ranks average their weights."""

import torch
import torch.distributed as dist
from torch import nn


def partner_of(rank, world):
    partner = rank ^ 1
    return partner if partner < world else world - 2


def gossip(model, partner):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    other = torch.empty_like(flat)
    sent = dist.isend(flat, dst=partner)
    dist.recv(other, src=partner)
    sent.wait()
    nn.utils.vector_to_parameters((flat + other) / 2, model.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for round_number in range(5):
        for _ in range(10):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        print(f"[rank {rank}] round {round_number} mean loss {mean.item() / world:.4f}", flush=True)
        if round_number > 0:
            gossip(model, partner_of(rank, world))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
