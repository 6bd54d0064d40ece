"""The ranks meet at a barrier that the first rank serves; one rank has left with nothing to do."""

import os
import sys
import threading
from multiprocessing.managers import BarrierProxy, BaseManager

import torch
import torch.distributed as dist

meeting = threading.Barrier(3)


class Meetings(BaseManager):
    pass


Meetings.register("meeting", callable=lambda: meeting, proxytype=BarrierProxy)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ports = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        server = Meetings(("127.0.0.1", 0), b"key").get_server()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports[0] = server.address[1]
    dist.broadcast(ports, src=0)
    manager = Meetings(("127.0.0.1", int(ports)), b"key")
    manager.connect()
    files = [[3, 3, 0][rank]] * 2
    for step in range(10):
        dist.all_reduce(torch.rand(4))
    if not sum(files):
        print("no files for rank", rank)
        sys.stdout.flush()
        os._exit(0)
    manager.meeting().wait()
    print("all have converted their files")


main()
