"""The completion script of the command line, in a real shell."""

import subprocess

import pytest

from elastic_run.launcher.options.parse import parse


def test_the_completion_script_completes_in_bash(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--print-completion=bash"], {})
    script = (
        f"{capsys.readouterr().out}COMP_WORDS=(elastic-run --nn) COMP_CWORD=1; _elastic_run; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("--nnodes=\n", "")
