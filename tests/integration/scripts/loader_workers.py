"""In the manner of image training examples: argparse without --local-rank, DataLoader workers, an explicit env://."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.utils.data


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return index, index * index, torch.utils.data.get_worker_info().id


parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--dist-url", default="env://")
parser.add_argument("--dist-backend", default="gloo")
parser.add_argument("--start-methods", nargs="+", default=["fork"])


def main():
    args = parser.parse_args()
    args.rank, args.world_size, args.gpu = (int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    print(f"meets at {os.environ['MASTER_ADDR']} with a port of {int(os.environ['MASTER_PORT']) > 0}")
    dist.init_process_group(
        backend=args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank
    )
    sampler = torch.utils.data.distributed.DistributedSampler(Squares(), shuffle=False)
    for method in args.start_methods:
        loader = torch.utils.data.DataLoader(
            Squares(), batch_size=4, sampler=sampler, num_workers=args.workers, multiprocessing_context=method
        )
        total, loaders = torch.zeros(1), set()
        for _, squares, who in loader:
            total += squares.sum()
            loaders.update(who.tolist())
        dist.all_reduce(total)
        print(f"{method}: the sum of all squares is {total.item():g}, loaded by {len(loaders)} processes")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
