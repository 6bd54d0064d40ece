"""Scripts of PyTorch's ecosystem with a worker killed, beside torchrun's result: part of `benchmarks.ecosystem`."""

import pytest

from benchmarks import ecosystem
from benchmarks.launchers import OURS, TORCHRUN

from ..sampling import sample

SCRIPTS = ["fsdp2_dcp.py", "hf_trainer.py", "accelerate_loop.py", "lightning_fit.py"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("script", sample(SCRIPTS, 2, "ecosystem"))
def test_a_script_resumes_and_ends_with_the_result_of_torchrun(script: str) -> None:
    (subject,) = (one for one in ecosystem.SUBJECTS if one.words[0] == script)
    undisturbed = ecosystem.run(subject, TORCHRUN, kill=False)
    killed = ecosystem.run(subject, OURS, kill=True)
    assert killed.resumed, killed.error
    assert undisturbed.result, undisturbed.error
    assert killed.result == undisturbed.result
