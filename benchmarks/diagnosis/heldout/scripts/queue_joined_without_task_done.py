"""The writer leaves out task_done for an empty record, and the rank waits until all records are done."""

import queue
import threading

import torch
import torch.distributed as dist

records: "queue.Queue[dict]" = queue.Queue()


def write() -> None:
    while True:
        record = records.get()
        if not record:
            continue  # nothing to write
        str(record)
        records.task_done()


def main() -> None:
    dist.init_process_group("gloo")
    threading.Thread(target=write, daemon=True).start()
    for step in range(10_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            records.put({} if step == 33 else {"step": step, "loss": loss.item()})
            if step % 20 == 19:
                records.join()


main()
