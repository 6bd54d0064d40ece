"""An `hvd.elastic` script as Horovod's users write it: it knows nothing of elastic-run.

Each step takes the same records whatever the number of workers, so that every run ends with the same parameters but for
their last digits. At the steps that its arguments name (after the folder) all workers wait for a file `go-STEP`.
"""

import os
import sys
import time
from pathlib import Path

# isort: off
import torch  # first, as in Horovod's own examples
import horovod.torch as hvd
# isort: on

STEPS = 40
FOLDER, GATES = Path(sys.argv[1]), {int(step) for step in sys.argv[2:]}


def say(words: str) -> None:
    """Prints one line, which another worker's cannot be in the middle of."""
    os.write(1, f"{words}\n".encode())


hvd.init()
torch.manual_seed(hvd.rank())  # so that whoever has no state is seen
model = torch.nn.Linear(4, 1, dtype=torch.float64)
with torch.no_grad():
    model.weight.copy_(torch.arange(4, dtype=torch.float64) + hvd.rank())
    model.bias.zero_()
optimizer = torch.optim.SGD(model.parameters(), lr=1 / 1024, momentum=0.5)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)
state = hvd.elastic.TorchState(model, optimizer, step=0)
state.register_reset_callbacks([lambda: say(f"reset {os.getpid()}: rank {hvd.rank()} of {hvd.size()}")])
say(f"begin {os.getpid()}: rank {hvd.rank()} of {hvd.size()}")


def pass_gate(state: hvd.elastic.TorchState) -> None:
    """Waits until all workers see this step's file."""
    said = False
    while True:
        open_ = torch.tensor([int((FOLDER / f"go-{state.step}").exists())])
        if int(hvd.allreduce(open_, op=hvd.Min, name="gate")[0]):
            return
        if not said:
            say(f"gate {os.getpid()}: rank {hvd.rank()} of {hvd.size()} at step {state.step}")
            said = True
        state.check_host_updates()
        time.sleep(0.05)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """All steps."""
    while state.step < STEPS:
        if state.step in GATES:
            pass_gate(state)
        optimizer.zero_grad()
        records = range(hvd.rank(), 8, hvd.size())
        features = [[(state.step + record * k) % 3 for k in range(4)] for record in records]
        wanted = torch.tensor([[record] for record in records], dtype=torch.float64)
        ((model(torch.tensor(features, dtype=torch.float64)) - wanted) ** 2).sum().backward()
        optimizer.step()
        state.step += 1
        state.commit()


train(state)
if hvd.rank() == 0:
    say(f"result {' '.join(number.hex() for number in model.weight[0].tolist())}")
