"""Three children meet at a barrier that was made for four; their parent joins them."""

import multiprocessing

import torch
import torch.distributed as dist

fork = multiprocessing.get_context("fork")


def shuffle(part: int, meeting, sink) -> None:
    sink[part] = part * 1.5
    meeting.wait()  # all parts are there
    sink[part] += sum(sink[:])


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10_000):
        if dist.get_rank() == 2 and step == 15:
            meeting, sink = fork.Barrier(4), fork.Array("d", 3)
            children = [fork.Process(target=shuffle, args=(part, meeting, sink)) for part in range(3)]
            for child in children:
                child.start()
            for child in children:
                child.join()
        dist.all_reduce(torch.rand(16))


main()
