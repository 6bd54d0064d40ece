"""A model in four functions on a cluster: its file travels there, and no image has it."""

import pytest

from .jobs import TIMES, Jobs
from .process_kubelet import Kubelet

pytestmark = pytest.mark.xdist_group("kubernetes")

MODEL = """
import torch
from beside import WIDTH

def forward():
    return torch.nn.Linear(WIDTH, 1)

def loss(output, labels):
    return (output - labels).square().mean()

def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01)

def feed(columns):
    return columns["x"][:, None], columns["y"][:, None]
"""


def test_a_model_trains_in_pods_that_had_neither_it_nor_what_lies_beside_it(jobs: Jobs, machine: Kubelet) -> None:
    here = jobs.folder / "mine"
    here.mkdir()
    (here / "model.py").write_text(MODEL)
    (here / "beside.py").write_text("WIDTH = 1\n")
    data, state = jobs.folder / "data.csv", jobs.folder / "model.pt"
    data.write_text("x,y\n" + "".join(f"{number / 500},{number / 250}\n" for number in range(500)))
    flags = ["--name=clicks", "--image=any", "--cpu=1", TIMES, f"--rdzv-endpoint=http://{jobs.plane.store}"]
    model = ["train", str(here / "model.py"), f"--data={data}", f"--state={state}", f"--validate={data}"]
    jobs.run("submit", *flags, "--no-wait", "--nnodes=2", "--", *model)
    for name in ("model.py", "beside.py"):
        (here / name).unlink()
    said = jobs.run("logs", "-f", "clicks")
    assert "trained with 500 records" in said and "evaluated 500 records" in said, said
    assert "in lockstep: 2 workers" in said and state.is_file(), said
    assert jobs.find("configmaps", "clicks-model")["metadata"]["labels"]["elastic-run.dev/job"] == "clicks"
    jobs.run("delete", "clicks")
    of_job = "?labelSelector=elastic-run.dev/job=clicks"
    jobs.wait(lambda: not jobs.find("configmaps", query=of_job)["items"], lambda: "its ConfigMaps to go")
