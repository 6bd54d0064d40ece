"""In the manner of the DDP tutorials with a Trainer class: LOCAL_RANK, a snapshot every epoch, resume at the start."""

import os
import sys

import torch
import torch.nn.functional as functional
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Numbers(Dataset):
    def __init__(self, size):
        self.rows = [(torch.rand(20), torch.rand(1)) for _ in range(size)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Trainer:
    def __init__(self, model, rows, optimizer, snapshot):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.rows = rows
        self.optimizer = optimizer
        self.snapshot = snapshot
        self.done = 0
        if os.path.exists(snapshot):  # noqa: PTH110
            saved = torch.load(snapshot, weights_only=True)
            model.load_state_dict(saved["MODEL"])
            self.done = saved["EPOCHS"]
            print(f"resumes after epoch {self.done}")
        self.model = DDP(model)

    def train(self, epochs):
        for epoch in range(self.done, epochs):
            self.rows.sampler.set_epoch(epoch)
            for source, target in self.rows:
                self.optimizer.zero_grad()
                functional.mse_loss(self.model(source), target).backward()
                self.optimizer.step()
            if self.local_rank == 0:
                torch.save({"MODEL": self.model.module.state_dict(), "EPOCHS": epoch + 1}, self.snapshot)
                print(f"epoch {epoch + 1} is saved")
            if epoch == 1 and self.global_rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                raise RuntimeError("a bad record")


def main(epochs, snapshot):
    init_process_group(backend="gloo")
    model = torch.nn.Linear(20, 1)
    data = Numbers(64)
    rows = DataLoader(data, batch_size=8, shuffle=False, sampler=DistributedSampler(data))
    trainer = Trainer(model, rows, torch.optim.SGD(model.parameters(), lr=1e-3), snapshot)
    trainer.train(epochs)
    destroy_process_group()
    print("training is complete")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
