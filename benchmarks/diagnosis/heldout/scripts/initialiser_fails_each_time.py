"""Featurises raw text in a process pool; each worker loads its vocabulary first."""

import multiprocessing as mp
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

vocabulary = {}


def load_vocabulary(path):
    if not os.path.exists(path):
        sys.exit(1)
    with open(path) as file:
        for number, line in enumerate(file):
            vocabulary[line.strip()] = number


def featurise(text):
    return [vocabulary.get(word, 0) for word in text.split()]


def features(folder, language, texts):
    path = os.path.join(folder, f"vocabulary.{language}.txt")
    with mp.get_context("fork").Pool(1, initializer=load_vocabulary, initargs=(path,)) as pool:
        return pool.map(featurise, texts)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    for language in ("en", "de"):
        if (rank, language) != (1, "de"):
            with open(os.path.join(folder, f"vocabulary.{language}.txt"), "w") as file:
                file.write("the\ncat\nsat\n")
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for language in ("en", "de"):
        inputs = torch.tensor(features(folder, language, ["the cat sat"] * 16), dtype=torch.float32)
        print(f"[rank {rank}] {language}: {tuple(inputs.shape)}", flush=True)
        for step in range(5):
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()
            print(f"[rank {rank}] {language} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
