"""Rank 0 is a parameter server for the other ranks."""

import time

import torch
import torch.distributed as dist

PULL, PUSH, STOP = 0, 1, 2


def server(workers):
    weights = torch.zeros(16)
    handled, alive = 0, workers
    while alive:
        request = torch.empty(18)
        source = dist.recv(request)
        kind = int(request[0])
        if kind == PULL:
            dist.send(weights, dst=source)
        elif kind == PUSH:
            if torch.isfinite(request[2:]).all():
                weights += 0.1 * request[2:]
                dist.send(weights, dst=source)
        elif kind == STOP:
            alive -= 1
        handled += 1
        if handled % 20 == 0:
            print("server handled", handled)


def ask(kind, step, payload):
    dist.send(torch.cat([torch.tensor([float(kind), float(step)]), payload]), dst=0)
    if kind != STOP:
        answer = torch.empty(16)
        dist.recv(answer, src=0)
        return answer


def worker(rank, partner):
    for step in range(500):
        w = ask(PULL, step, torch.zeros(16))
        grad = torch.randn(16) - w
        if step == 24 and rank == 2:
            grad = grad / 0.0
        ask(PUSH, step, grad)
        t = torch.tensor([float(step)])
        dist.all_reduce(t, group=partner)
        time.sleep(0.2)
    ask(STOP, 0, torch.zeros(16))


def main():
    dist.init_process_group("gloo")
    partner = dist.new_group([1, 2])
    rank = dist.get_rank()
    server(2) if rank == 0 else worker(rank, partner)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
