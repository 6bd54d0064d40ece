"""Rank 2 makes a pool of processes, whose initialiser loads a dictionary for long; then the work itself is quick."""

import multiprocessing
import time

import torch
import torch.distributed as dist

WORDS: dict = {}


def load(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        WORDS[f"word{len(WORDS) % 5_000}"] = len(WORDS)
        time.sleep(0.0005)


def tag(sentence: str) -> int:
    return sum(WORDS.get(word, 0) for word in sentence.split())


def tag_all(sentences: list) -> list:
    fork = multiprocessing.get_context("fork")
    with fork.Pool(1, initializer=load, initargs=(12.0,)) as pool:
        return pool.map_async(tag, sentences).get(timeout=120)


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(50):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if step == 35 and dist.get_rank() == 2:
            print(len(tag_all(["word1 word2", "word3"] * 20)), "tagged", flush=True)
        if step % 7 == 0:
            print(f"[{dist.get_rank()}] {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
