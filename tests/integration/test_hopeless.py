"""Failures that no restart can change end the job, whatever `--max-restarts` would allow."""

from pathlib import Path

import pytest

from .cluster import Cluster

SCRIPTS = {
    "syntax": ("import os\nprint(os.environ['RANK']\n", (), "SyntaxError", 1, 1),
    "missing module": ("import no_such_module_anywhere\n", (), "No module named 'no_such_module_anywhere'", 1, 1),
    "wrong argument": (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nparser.parse_args()\n",
        ("--learning", "1"),
        "unrecognized arguments: --learning 1",
        1,
        1,
    ),
    "constructor": (
        "import os, time\nclass Net:\n    def __init__(self, size): pass\n\n"
        "if os.environ['RANK'] != '1':\n    time.sleep(60)\nNet(size=1, width=2)\n",
        (),
        "unexpected keyword argument 'width'",
        2,
        5,
    ),
}


@pytest.mark.parametrize("how", SCRIPTS)
def test_a_failure_that_a_restart_does_not_help_is_not_retried_to_the_end(
    job: Cluster, tmp_path: Path, how: str
) -> None:
    text, arguments, words, rounds, code = SCRIPTS[how]
    script = tmp_path / "train.py"
    script.write_text(text)
    job.start("A", "B", script=script, args=arguments, nnodes=2, nproc_per_node=2, same_failure_limit=None)
    assert job.finish() == {"A": code, "B": code}
    for node in "AB":
        assert words in job.last_lines(node)
        alike = "the same failure 2 times in a row" if how == "constructor" else "every rank failed in the same way"
        assert alike in job.last_lines(node)
        assert f"in round {rounds}" in job.last_lines(node)


def test_what_only_one_node_lacks_is_retried(job: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\n"
        "if os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    import not_mounted_yet\n"
    )
    job.start("A", "B", script=script, args=(), nnodes=2, same_failure_limit=None)
    assert job.finish() == {"A": 0, "B": 0}
