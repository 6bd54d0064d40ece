"""Rank 0 runs a compiler as a child; the others wait for it in a barrier."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

COMPILER = """
import time
end = time.monotonic() + 16
while time.monotonic() < end:
    source = "\\n".join(f"def f{n}(x): return [x * {n} for y in range(x) if y]" for n in range(500))
    compile(source, "kernels", "exec")
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 55):
        dist.all_reduce(torch.randn(64))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank}: step {step}", flush=True)
        if step == 30:
            if rank == 0:
                subprocess.run([sys.executable, "-c", COMPILER], check=True)
            dist.barrier()
    dist.destroy_process_group()


main()
