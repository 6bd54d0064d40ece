"""A loop waits on a condition for the version it has asked for; notices come all the time, but as text."""

import threading
import time

import torch
import torch.distributed as dist


class Versions:
    def __init__(self, as_text: bool) -> None:
        self.changed = threading.Condition()
        self.current: int | str = 0
        self.as_text = as_text

    def poll_server(self) -> None:
        version = 0
        while True:
            time.sleep(0.4)
            version += 1
            with self.changed:
                self.current = str(version) if self.as_text and version > 8 else version
                self.changed.notify_all()

    def wait_for(self, version: int) -> None:
        with self.changed:
            self.changed.wait_for(
                lambda: self.current == version or (not isinstance(self.current, str) and self.current > version)
            )


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    versions = Versions(as_text=rank == 1)  # the new server answers in JSON
    threading.Thread(target=versions.poll_server, daemon=True).start()
    for version in range(1, 10_000):
        versions.wait_for(version)
        for _ in range(5):
            dist.all_reduce(torch.rand(16))
        print(f"rank {rank} has trained with policy {version}", flush=True)


main()
