"""DDP with ElasticBatchSampler as its documentation shows it, under any launcher: `OUT STOP` (commits in this run)."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from elastic_run.torch import ElasticBatchSampler

SIZE, EPOCHS = 101, 3


def main() -> None:
    out, stop = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = ElasticBatchSampler(SIZE, 4, epochs=EPOCHS)
    loader = DataLoader(torch.arange(SIZE), batch_sampler=sampler, num_workers=1)
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.module.load_state_dict(state["model"])
        sampler.load_state_dict(state["sampler"])
    used: list[tuple[int, int]] = []
    for epoch in range(sampler.epoch, EPOCHS):
        for batch in loader:
            model(batch.float().unsqueeze(1) / SIZE).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            used += [(epoch, int(record)) for record in batch]
            sampler.commit()
            stop -= 1
            if stop == 0:
                break
        if stop == 0:
            break
    everybody: list[list[tuple[int, int]]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everybody, used)
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "sampler": sampler.state_dict()}, checkpoint)
        with (out / "used").open("a") as file:
            file.writelines(f"{epoch} {record}\n" for rank in everybody for epoch, record in rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
