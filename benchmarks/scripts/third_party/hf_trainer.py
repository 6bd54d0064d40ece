"""A few steps of transformers' Trainer on random tokens, imported as in its examples."""

# The libraries annotate themselves only in part:
# pyright: basic

import os
import sys

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(number, number + 16) % 64
        return {"input_ids": tokens, "labels": tokens}


def main(out: str) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=out, max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True, disable_tqdm=True
    )
    Trainer(model=model, args=arguments, train_dataset=Tokens()).train()
    print(f"trained on rank {os.environ['RANK']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
