"""The same Trainer, in a script that begins as `run_clm.py` does: checks of versions between imports and the rest."""

# The libraries annotate themselves only in part:
# pyright: basic

import logging
import sys
from dataclasses import dataclass, field

import datasets
import torch
import transformers
from datasets import Dataset
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.utils import check_min_version
from transformers.utils.versions import require_version

check_min_version("4.40.0")
require_version("datasets>=2.14.0", "to mend it: pip install -U datasets")

logger = logging.getLogger(__name__)
KINDS = tuple(kind.model_type for kind in MODEL_FOR_CAUSAL_LM_MAPPING)


@dataclass
class ModelArguments:
    model_type: str = field(default="gpt2", metadata={"help": "one of " + ", ".join(KINDS)})


def main(out: str) -> None:
    words = ["--output_dir", out, "--max_steps", "2", "--report_to", "none", "--use_cpu", "--disable_tqdm", "true"]
    model_arguments, arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses(
        words
    )
    datasets.utils.logging.set_verbosity_error()
    transformers.utils.logging.set_verbosity_error()
    set_seed(arguments.seed)
    config: AutoConfig = CONFIG_MAPPING[model_arguments.model_type](
        vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2
    )
    model = AutoModelForCausalLM.from_config(config)
    tokens = torch.arange(32 * 16).remainder(64).view(32, 16).tolist()
    trained = Dataset.from_dict({"input_ids": tokens, "labels": tokens})
    Trainer(model=model, args=arguments, train_dataset=trained, data_collator=default_data_collator).train()
    logger.warning("trained on rank %s", arguments.process_index)


if __name__ == "__main__":
    main(sys.argv[1])
