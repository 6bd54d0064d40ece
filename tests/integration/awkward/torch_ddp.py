"""One step of data-parallel training, and one of sharded training. Nobody destroys the process group if told so."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
draws = [None] * dist.get_world_size()
dist.all_gather_object(draws, (os.urandom(4).hex(), torch.initial_seed()))
print("own random bytes", len({draw[0] for draw in draws}), "own seeds", len({draw[1] for draw in draws}))
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.full((8, 4), rank + step, dtype=torch.float)).pow(2).mean().backward()
    optimizer.step()
print([parameter.tolist() for parameter in model.parameters()])
if "sharded" in sys.argv:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    sharded = torch.nn.Linear(4, 2)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    sharded(torch.ones(2, 4)).sum().backward()
    print([parameter.grad.to_local().tolist() for parameter in sharded.parameters()])
dist.barrier()
if "leave" not in sys.argv:
    dist.destroy_process_group()
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.stdout.flush()
    os._exit(3)
