"""What the command line asks for, with OpenTelemetry installed, and its completion script in a real shell."""

import subprocess
from pathlib import Path

import pytest

from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.settings import Options


def options(*words: str) -> Options:
    return parse([*words, "train.py"], {"USER": "ada", "PATH": "/usr/bin:/bin"})


def test_a_collector_is_a_url_or_what_its_own_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    assert options().output.otlp is None and options("--otlp").output.otlp == ""
    assert options("--otlp=http://collector:4318").output.otlp == "http://collector:4318"
    for wrong in ("collector:4318", "http://[::1", "http://:4318", "http://collector:port", "http://collector:99999"):
        with pytest.raises(UsageError, match="is not the URL of a collector"):
            options(f"--otlp={wrong}")


def test_the_completion_script_completes_in_bash(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--print-completion=bash"], {})
    script = (
        f"{capsys.readouterr().out}COMP_WORDS=(elastic-run --nn) COMP_CWORD=1; _elastic_run; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("--nnodes=\n", "")
