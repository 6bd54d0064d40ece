"""Each worker computes on its device, and prints as JSON where it is and what it sees."""

# torch annotates itself only in part:
# pyright: basic

import json
import os
import sys

import torch

kind = sys.argv[1]
local_rank = int(os.environ["LOCAL_RANK"])
if kind == "cuda":
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    devices = torch.cuda.device_count()
else:
    device, devices = torch.device("cpu"), 0
print(
    json.dumps(
        {
            "rank": int(os.environ["RANK"]),
            "local_rank": local_rank,
            "world": int(os.environ["WORLD_SIZE"]),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "devices": devices,
            "sum": float(torch.arange(10.0, device=device).sum()),
        }
    ),
    flush=True,
)
