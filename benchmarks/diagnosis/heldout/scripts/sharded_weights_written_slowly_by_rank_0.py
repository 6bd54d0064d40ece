"""All ranks gather the sharded weights; the first writes them to a slow disk while the others wait."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(12, 33), nn.ReLU(), nn.Linear(33, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    for step in range(5):
        model(torch.rand(4, 12)).sum().backward()
        model.zero_grad()
    weights = {name: each.full_tensor() for name, each in model.state_dict().items()}
    if dist.get_rank() == 0:
        with tempfile.TemporaryFile() as sink:
            for part in range(60):
                sink.write(bytes(1 << 16))
                sink.flush()
                os.fsync(sink.fileno())
                time.sleep(0.25)  # a busy file system
            print(len(weights))
    dist.barrier()
    dist.destroy_process_group()


main()
