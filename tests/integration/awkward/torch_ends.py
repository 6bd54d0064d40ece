"""A queue that is taken apart at the end, where multiprocessing imports what keeps track of it once more."""

import multiprocessing
import os
import sys

import torch

queue = multiprocessing.get_context("spawn").Queue()
queue.put(torch.arange(3).tolist())
print(queue.get())
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
