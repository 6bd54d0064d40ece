"""The call that waits for everyone stands inside of the main process's branch."""

import torch
from accelerate import Accelerator


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(1000):
        for step in range(10):
            loss = model(torch.rand(4, 8)).sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.is_main_process and epoch % 3 == 2:
            state = accelerator.unwrap_model(model).state_dict()
            accelerator.wait_for_everyone()
            print("saved", len(state))


main()
