"""What needs a GPU, and what is said where there is none.

Each test of this folder runs on a device: `cuda` where there is one (marked `gpu`), and `cpu` everywhere. On a CPU the
same script runs with gloo, so it shows that script and test are right, and nothing about GPUs.
"""

import importlib.util
import os
from pathlib import Path

import pytest

from elastic_run.adapters.accelerators import count_gpus


def why_not() -> str:
    """Why no test can use a GPU here; empty where they can."""
    if not count_gpus({name: value for name, value in os.environ.items() if name == "CUDA_VISIBLE_DEVICES"}):
        return "no NVIDIA GPU is here"
    if importlib.util.find_spec("torch") is None:
        return "a GPU is here, and no torch"
    import torch

    if not torch.cuda.is_available():
        return f"a GPU is here, and torch {torch.__version__} cannot use it"
    return ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.get_closest_marker("gpu")]
    if mine and (reason := why_not()):
        for item in mine:
            item.add_marker(pytest.mark.skip(reason=f"NOT RUN: {reason}"))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line for each reason, because pytest itself counts what it skips without a word."""
    here = str(Path(__file__).parent.relative_to(config.rootpath))
    reasons: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        if report.nodeid.startswith(here):
            _, _, reason = report.longrepr  # the file, the line, and what was said
            name = report.nodeid.partition("::")[2].removeprefix("test_").partition("[")[0].replace("_", " ")
            reasons.setdefault(reason.removeprefix("Skipped: "), []).append(name)
    for reason, names in reasons.items():
        terminalreporter.write_line(f"{here}: {reason}: {'; '.join(names)}. With a GPU: make test-gpu")


def devices() -> list[object]:
    """For `parametrize`."""
    return [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
