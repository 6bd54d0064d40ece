"""`subprocess.run(capture_output=True)` of a script that ends at once, but leaves a job behind that has its output."""

import subprocess
import time

import torch
import torch.distributed as dist

SCRIPT = """
nvidia_smi_log() { while :; do sleep 5; done; }
[ "$1" -ge 3 ] && nvidia_smi_log &
echo "profile of epoch $1"
"""


def profile(epoch: int) -> str:
    return subprocess.run(["sh", "-c", SCRIPT, "profile", str(epoch)], capture_output=True, text=True).stdout


def train_epoch(net: torch.nn.Module) -> None:
    for _ in range(10):
        net.zero_grad()
        net(torch.rand(4, 10)).pow(2).mean().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        time.sleep(0.1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    net = torch.nn.Linear(10, 2)
    for epoch in range(1_000):
        train_epoch(net)
        if dist.get_rank() == 1:
            print(profile(epoch), end="", flush=True)
