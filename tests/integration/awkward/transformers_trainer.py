"""The Trainer of transformers, on a model of a few hundred numbers and data that it makes itself."""

import os
import sys

import torch
import torch.distributed as dist
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

set_seed(7)
config = BertConfig(
    vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
)
words = torch.randint(32, (64, 6))
data = [{"input_ids": row, "labels": int(row.sum()) % 2} for row in words]


class Tell(TrainerCallback):
    """Says at each step where it is."""

    def on_step_end(self, args, state, control, **others):
        print("step", state.global_step, "of", args.world_size)


trainer = Trainer(
    BertForSequenceClassification(config),
    TrainingArguments(
        "trained",
        use_cpu=True,
        max_steps=4,
        per_device_train_batch_size=4,
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        ddp_find_unused_parameters=False,
    ),
    train_dataset=data,
    callbacks=[Tell()],
)
trainer.remove_callback(PrinterCallback)  # it prints how long it took
trainer.train()
print(sum(float(parameter.detach().sum()) for parameter in trainer.model.parameters()))
print(trainer.accelerator.distributed_type, trainer.args.local_rank, sorted(os.listdir()))
dist.barrier()
dist.destroy_process_group()
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.stdout.flush()
    os._exit(3)
