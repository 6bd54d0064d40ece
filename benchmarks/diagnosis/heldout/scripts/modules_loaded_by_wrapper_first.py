"""A short training that is started by a wrapper which sets up the environment."""

import os
import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {rank}: environment {os.environ.get('SITE_MODULES', 'none')}")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(25):
        loss = model(torch.randn(5, 3)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.2)
        if step % 6 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()
    with open(os.path.join(os.environ["RUN_FOLDER"], f"rank{rank}.log"), "w") as f:
        f.write("finished\n")


if __name__ == "__main__":
    main()
