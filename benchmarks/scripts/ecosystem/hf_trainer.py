"""transformers' Trainer, which finds its last checkpoint as its examples do."""

# pyright: basic

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


class Tokens(Dataset):
    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 16) % 64
        return {"input_ids": tokens, "labels": tokens}


class Slowly(TrainerCallback):
    def on_step_end(self, *_, **__) -> None:
        time.sleep(0.03)


def main(out: Path) -> None:
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=60,
        per_device_train_batch_size=4,
        save_steps=10,
        save_total_limit=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Slowly()])
    last = get_last_checkpoint(str(out))
    if last:
        print(f"resumed from {Path(last).name}")
    trainer.train(resume_from_checkpoint=last)
    if trainer.is_world_process_zero():
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
