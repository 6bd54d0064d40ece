"""What a commit costs in a step, and the way of a state: `always`, `never`, `plain`, `state` or `socket`, MB, steps.

Each rank writes its answer where it runs, and its last argument is there to be another one in each run; `socket`, which
has no ranks, writes its answer to the file that it is given last.
"""

# torch annotates itself only in part:
# pyright: basic

import json
import os
import socket
import sys
import time
from pathlib import Path

WARM_STEPS = 20
PIECE = 1 << 20
"""Bytes in a call, of the sizes tried the one with which a connection over loopback is fastest."""


def answer(file: Path, **found: float) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.rename(file)


def model_of(megabytes: int, width: int):
    from torch import nn

    layers = max(1, round(megabytes * (1 << 20) / (4 * width * width)))
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


def trained(kind: str, megabytes: int, steps: int) -> dict[str, float]:
    """The seconds of the last `steps` steps, and those of them inside of what `State` adds."""
    import torch
    from torch import distributed as dist
    from torch import nn

    from elastic_run import torch as elastic

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = model_of(megabytes, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    found: dict[str, float] = {}

    def loop(net: nn.Module, commit) -> None:
        begun = inside = 0.0
        for step in range(WARM_STEPS + steps):
            if step == WARM_STEPS:
                begun, inside = time.perf_counter(), 0.0
            optimizer.zero_grad()
            net(torch.randn(8, 1024)).square().mean().backward()
            optimizer.step()
            before = time.perf_counter()
            commit()
            inside += time.perf_counter() - before
        found.update(seconds=time.perf_counter() - begun, inside=inside)

    if kind == "plain":
        dist.init_process_group("gloo")
        loop(nn.parallel.DistributedDataParallel(model), lambda: None)
        dist.destroy_process_group()
    else:
        state = elastic.State(model=model, optimizer=optimizer, copies=kind)
        for attempt in state.attempts():
            with attempt:
                loop(state.ddp(), state.commit)
    return found


def brought(megabytes: int) -> dict[str, float]:
    """The seconds in which rank 1 gets what rank 0 has."""
    import torch
    from torch import distributed as dist

    from elastic_run import torch as elastic

    class Timed(elastic.State):
        def sync(self) -> None:
            dist.barrier()
            begun = time.perf_counter()
            super().sync()
            self.seconds = time.perf_counter() - begun

    torch.manual_seed(int(os.environ["RANK"]))
    model = model_of(megabytes, 2896)
    state = Timed(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), seconds=0.0)
    seconds = 0.0
    for attempt in state.attempts():
        with attempt:
            seconds = state.seconds
            mark = torch.tensor([sum(float(each.sum()) for each in state.model.parameters())], dtype=torch.float64)
            marks = [torch.empty_like(mark) for _ in range(2)]
            dist.all_gather(marks, mark)
            assert torch.equal(*marks), "the ranks differ"
    return {"seconds": seconds}


def sent(megabytes: int) -> dict[str, float]:
    """The seconds of one TCP connection for as many bytes."""
    size = megabytes << 20
    listening = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        given = memoryview(bytearray(b"\1" * size))
        with socket.create_connection(listening.getsockname()) as connection:
            connection.recv(1)
            for begin in range(0, size, PIECE):
                connection.sendall(given[begin : begin + PIECE])
        os._exit(0)
    taken = memoryview(bytearray(b"\2" * size))  # not from before the fork, or each page would be copied when written
    connection, _ = listening.accept()
    begun = time.perf_counter()
    connection.sendall(b"!")
    got = 0
    while got < size:
        got += connection.recv_into(taken[got : got + PIECE], 0, socket.MSG_WAITALL)
    seconds = time.perf_counter() - begun
    os.waitpid(child, 0)
    assert taken[-1] == 1
    return {"seconds": seconds}


def main() -> None:
    kind, megabytes, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if kind == "socket":
        answer(Path(sys.argv[4]), **sent(megabytes))
        return
    found = brought(megabytes) if kind == "state" else trained(kind, megabytes, steps)
    answer(Path(f"answer{os.environ['RANK']}"), **found)


if __name__ == "__main__":
    main()
