"""Two actors play episodes and send their returns to the learner."""

import time

import torch
import torch.distributed as dist


class Robot:
    """A simulated arm that moves in real time."""

    def run(self, seconds):
        end = time.monotonic() + seconds
        moves = 0
        while time.monotonic() < end:
            time.sleep(0.02)
            moves += 1
        return float(moves)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    lengths = [0.3, 0.3, 15.0, 0.3]
    for episode, seconds in enumerate(lengths):
        if rank == 0:
            returns = [torch.zeros(1) for _ in range(world)]
            dist.gather(torch.zeros(1), returns, dst=0)
            baseline = torch.stack(returns[1:]).mean().reshape(1)
            print(f"episode {episode} mean return {baseline.item():.1f}", flush=True)
        else:
            moves = Robot().run(seconds * (1.0 if rank == 1 else 0.8))
            dist.gather(torch.tensor([moves]), dst=0)
            baseline = torch.zeros(1)
        dist.broadcast(baseline, src=0)
        print(f"[rank {rank}] baseline {baseline.item():.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
