"""Asks a reward model, which is a service of its own, about each group of samples."""

import json
import multiprocessing as mp
import socket
import time

import torch
import torch.distributed as dist


def reward_model(conn):
    s = socket.create_server(("127.0.0.1", 0))
    conn.send(s.getsockname()[1])
    n = 0
    while True:
        c, _ = s.accept()
        with c, c.makefile("rw") as f:
            request = json.loads(f.readline())
            n += 1
            if n == 6:
                time.sleep(13)  # a long text
            f.write(json.dumps({"reward": sum(request["tokens"]) / 100}) + "\n")
            f.flush()


def ask(port, tokens):
    with socket.create_connection(("127.0.0.1", port)) as c, c.makefile("rw") as f:
        f.write(json.dumps({"tokens": tokens}) + "\n")
        f.flush()
        return json.loads(f.readline())["reward"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        ours, theirs = mp.Pipe()
        mp.get_context("fork").Process(target=reward_model, args=(theirs,), daemon=True).start()
        port = ours.recv()
    for step in range(20):
        r = torch.zeros(1)
        if rank == 1:
            r[0] = ask(port, list(range(step)))
        dist.broadcast(r, src=1)
        time.sleep(0.3)
        if rank == 0:
            print(f"step {step} reward {r.item():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
