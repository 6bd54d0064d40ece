"""Learns the merges of a byte pair encoding on the last rank; the others wait for them at the store."""

import collections
import itertools
import json
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def learn_merges(words, count):
    merges = []
    vocabulary = {tuple(word): number for word, number in words.items()}
    for _ in range(count):
        pairs = collections.Counter()
        for symbols, number in vocabulary.items():
            for pair in itertools.pairwise(symbols):
                pairs[pair] += number
        best = max(pairs, key=pairs.get)
        merges.append(best)
        merged = {}
        for symbols, number in vocabulary.items():
            out, position = [], 0
            while position < len(symbols):
                if symbols[position : position + 2] == best:
                    out.append("".join(best))
                    position += 2
                else:
                    out.append(symbols[position])
                    position += 1
            merged[tuple(out)] = number
        vocabulary = merged
    return merges


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        if step == 20:
            if rank == dist.get_world_size() - 1:
                source = random.Random(0)
                words = {"".join(source.choices("etaoinshr", k=9)): source.randint(1, 9) for _ in range(12_000)}
                store.set("merges", json.dumps(learn_merges(words, 360)))
            merges = json.loads(store.get("merges"))
            print(f"[rank {rank}] {len(merges)} merges, the first is {merges[0]}", flush=True)
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
