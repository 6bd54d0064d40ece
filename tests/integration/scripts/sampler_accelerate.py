"""The same with accelerate, which prepares all but the loader: `OUT STOP [prepare the loader]`."""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.utils.data import DataLoader

from elastic_run.torch import ElasticBatchSampler

SIZE, EPOCHS = 101, 3


def main() -> None:
    out, stop = Path(sys.argv[1]), int(sys.argv[2])
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = ElasticBatchSampler(SIZE, 4, epochs=EPOCHS)
    loader = DataLoader(torch.arange(SIZE), batch_sampler=sampler)
    model, optimizer = accelerator.prepare(model, optimizer)
    if len(sys.argv) > 3:
        loader = accelerator.prepare(loader)
    accelerator.register_for_checkpointing(sampler)
    checkpoint = out / "checkpoint"
    if checkpoint.exists():
        accelerator.load_state(str(checkpoint))
    used: list[tuple[int, int]] = []
    for epoch in range(sampler.epoch, EPOCHS):
        for batch in loader:
            batch = batch.to(accelerator.device)
            accelerator.backward(model(batch.float().unsqueeze(1) / SIZE).mean())
            optimizer.step()
            optimizer.zero_grad()
            used += [(epoch, int(record)) for record in batch]
            sampler.commit()
            stop -= 1
            if stop == 0:
                break
        if stop == 0:
            break
    accelerator.save_state(str(checkpoint))
    everybody = gather_object(used)
    if accelerator.is_main_process:
        with (out / "used").open("a") as file:
            file.writelines(f"{epoch} {record}\n" for epoch, record in everybody)
    # What accelerate holds of the group at the interpreter's end may abort it ("terminate called").
    accelerator.free_memory()
    del model, optimizer
    accelerator.end_training()


if __name__ == "__main__":
    main()
