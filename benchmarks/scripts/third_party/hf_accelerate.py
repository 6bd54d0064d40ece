"""A loop of one's own with accelerate and a model of transformers, imported as in accelerate's examples."""

# The libraries annotate themselves only in part:
# pyright: basic

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


def main(out: str) -> None:
    accelerator = Accelerator(cpu=True, project_dir=out)
    set_seed(42)
    config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertForSequenceClassification(config)
    loader = DataLoader(TensorDataset(torch.randint(64, (32, 8)), torch.randint(2, (32,))), batch_size=4)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    schedule = get_linear_schedule_with_warmup(optimizer, 1, 8)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for tokens, labels in loader:
        accelerator.backward(model(input_ids=tokens, labels=labels).loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    accelerator.print("trained")


if __name__ == "__main__":
    main(sys.argv[1])
