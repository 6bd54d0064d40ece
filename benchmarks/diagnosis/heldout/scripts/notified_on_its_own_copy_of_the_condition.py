"""The producer was given a copy of the channel, and with it a condition of its own."""

import copy
import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


class Signal(threading.Condition):
    def __init__(self) -> None:
        super().__init__(threading.RLock())

    def __deepcopy__(self, memo: dict) -> "Signal":
        return Signal()  # locks cannot be copied


@dataclass
class Channel:
    items: list = field(default_factory=list)
    signal: Signal = field(default_factory=Signal)


def produce(channel: Channel, items: list) -> None:
    for number in range(10_000):
        with channel.signal:
            items.append(number)
            channel.signal.notify_all()


def main() -> None:
    dist.init_process_group("gloo")
    channel = Channel()
    for step in range(10_000):
        if dist.get_rank() == 1 and step == 10:
            threading.Timer(0.5, produce, (copy.deepcopy(channel), channel.items)).start()
            with channel.signal:
                while not channel.items:
                    channel.signal.wait()
        dist.all_reduce(torch.rand(16))


main()
