"""Sets what torch and its libraries read while they are loaded, then imports torch and asks what they have read."""

import json
import os
import sys
import warnings

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TORCH_LOGS"] = "dynamo"
os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "1"
os.environ["KMP_DUPLICATE_LIB_OK"] = "TRUE"
before = [str(line) for line in warnings.filters]

import numpy
import torch

print("filters", [str(line) for line in warnings.filters if str(line) not in before])
print("threads", torch.get_num_threads(), torch.get_num_interop_threads())
print("info", [line for line in torch.__config__.parallel_info().splitlines() if "hardware" not in line])
print("cuda", torch.cuda.is_available(), torch.cuda.device_count())
os.makedirs("private", exist_ok=True)
with open(f"private/{os.environ['RANK']}.json", "w") as file:
    json.dump({"seed": torch.initial_seed(), "draw": torch.rand(3).tolist(), "of numpy": numpy.random.random()}, file)
print("default", torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled())
print("tasks", len(os.listdir("/proc/self/task")))
from threadpoolctl import threadpool_info

for library in sorted(threadpool_info(), key=lambda found: found["prefix"]):
    print({key: library[key] for key in ("user_api", "internal_api", "prefix", "num_threads") if key in library})
one = numpy.arange(90_000, dtype=float).reshape(300, 300)
print((one @ one).sum(), (torch.from_numpy(one) @ torch.from_numpy(one)).sum(), numpy.linalg.norm(one))
weight = torch.ones(4, requires_grad=True)
(weight * torch.arange(4)).sum().backward()
print(weight.grad)
print("tasks", len(os.listdir("/proc/self/task")))
print("modules", sorted(sys.modules))
print("hooks", [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path], sys.excepthook)
print("environment", {name: value for name, value in os.environ.items() if name.startswith(("TORCH_", "OMP_", "MKL"))})
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
