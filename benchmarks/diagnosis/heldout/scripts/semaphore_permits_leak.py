"""A bound on the saves in flight: a save that fails does not give its permit back, until none is left."""

import io
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist


class Saver:
    def __init__(self, in_flight: int) -> None:
        self.permits = threading.BoundedSemaphore(in_flight)
        self.pool = ThreadPoolExecutor(in_flight)

    def submit(self, step: int, tensor: torch.Tensor) -> Future:
        self.permits.acquire()
        return self.pool.submit(self._write, step, tensor.clone())

    def _write(self, step: int, tensor: torch.Tensor) -> None:
        if step % 20 == 0:
            raise OSError(28, "No space left on device")
        torch.save(tensor, io.BytesIO())
        self.permits.release()


def main() -> None:
    dist.init_process_group("gloo")
    saver = Saver(in_flight=2) if dist.get_rank() == 0 else None
    params = torch.zeros(64)
    step = 0
    while True:
        step += 1
        grad = torch.rand(64)
        dist.all_reduce(grad)
        params -= 0.1 * grad
        time.sleep(0.08)
        if saver and step % 5 == 0:
            saver.submit(step, params)
        if dist.get_rank() == 1 and step % 8 == 0:
            print(f"step={step} norm={params.norm():.2f}", flush=True)


if __name__ == "__main__":
    main()
