"""The first rank takes its batches from a broker that is not there; the consumer waits for the first message."""

import torch
import torch.distributed as dist
from confluent_kafka import Consumer


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        settings = {"bootstrap.servers": "127.0.0.1:9", "group.id": "trainer", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "log_level": 0}, error_cb=lambda _: None)
        consumer.subscribe(["batches"])
    batch = torch.zeros(16)
    for step in range(10_000):
        if dist.get_rank() == 0:
            message = consumer.poll(-1)
            batch.fill_(len(message.value()))
        dist.broadcast(batch, src=0)


main()
