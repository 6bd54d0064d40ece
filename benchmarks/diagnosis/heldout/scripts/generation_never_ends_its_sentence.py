"""Text is generated until the end-of-sentence token comes; one rank's prompt never leads to it."""

import torch
import torch.distributed as dist

END = 0


def generate(model: torch.nn.Module, token: int, table: torch.Tensor) -> "list[int]":
    tokens = [token]
    while tokens[-1] != END:
        scores = model(table[tokens[-1]]) * 0 + torch.nn.functional.one_hot(torch.tensor((tokens[-1] * 2) % 24), 24)
        tokens.append(int(scores.argmax()))
        tokens = tokens[-128:]
    return tokens


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, table = torch.nn.Linear(8, 24), torch.rand(24, 8)
    for step in range(10_000):
        if step % 5 == 4:
            with torch.no_grad():
                generate(model, 8 if dist.get_rank() == 1 and step == 14 else 12, table)
        dist.all_reduce(torch.rand(16))


main()
