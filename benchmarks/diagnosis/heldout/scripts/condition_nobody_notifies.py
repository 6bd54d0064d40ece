"""A weight averager in a thread that dies of a typo; the loop waits for its notification."""

import threading
import time

import torch
import torch.distributed as dist

ready = threading.Condition()
averages: list[torch.Tensor] = []


def average(history: list[torch.Tensor], config: dict[str, float]) -> None:
    decay = config["ema_decay"] if len(history) < 5 else config["ema_deacy"]
    result = torch.zeros(64)
    for weight in history:
        result = decay * result + (1 - decay) * weight
    with ready:
        averages.append(result)
        ready.notify()


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    config = {"ema_decay": 0.9}
    weight, history = torch.zeros(64), []
    for step in range(10_000):
        gradient = torch.randn(64) / world
        dist.all_reduce(gradient)
        weight = weight - 0.1 * gradient
        time.sleep(0.08)
        if rank == 2 and step % 10 == 9:
            history.append(weight)
            seen = len(averages)
            threading.Thread(target=average, args=(history, config)).start()
            with ready:
                while len(averages) == seen:
                    ready.wait()
        if rank == 0 and step % 10 == 0:
            print("step", step, float(weight.norm()), flush=True)


main()
