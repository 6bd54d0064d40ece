"""Saves checkpoints asynchronously; a new one starts when the one before has been written."""

import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SlowDisk(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        time.sleep(12)
        return super().write_data(plan, planner)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    model = DDP(nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    checkpoints = dist.new_group()
    pending = None
    for epoch in range(2):
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 16)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        if pending is not None:
            pending.result()
            print(f"[rank {rank}] the checkpoint of epoch {epoch - 1} is complete", flush=True)
        writer = SlowDisk(f"{box[0]}/epoch-{epoch}") if epoch == 0 else dcp.FileSystemWriter(f"{box[0]}/epoch-{epoch}")
        state = {"model": model.module.state_dict()}
        pending = dcp.async_save(state, storage_writer=writer, process_group=checkpoints)
    pending.result()
    dist.barrier()
    if rank == 0:
        shutil.rmtree(box[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
