"""What a command line, an environment and a line to join say of the job's secret."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_run.launcher import trust
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.settings import Options
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import Invitation, new_secret
from elastic_run.rendezvous.store.endpoint import parse_endpoints

SECRET = new_secret()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path / "train.py"


def options(*words: str, **environ: str) -> Options:
    return parse([*words, "train.py"], environ)


@pytest.mark.usefixtures("script")
def test_the_line_that_is_printed_can_be_pasted_and_holds_no_secret_where_it_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = options("--nnodes=2", "--nproc-per-node=4", "--rdzv-id=job")
    endpoints = parse_endpoints("10.0.0.1:29500")
    assert SECRET.text not in "".join(trust.invitation_lines(found, endpoints, Identity(SECRET)))

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    (shown,) = trust.invitation_lines(found, endpoints, Identity(SECRET))
    code = "import sys; print(sys.argv[1:], sys.stdin.read())"
    command = shown.replace("elastic-run join", f"{sys.executable} -c '{code}'", 1)
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    assert "--nproc-per-node=4" in said and Invitation("10.0.0.1:29500", "job", SECRET).line in said


def test_a_job_of_one_node_loads_no_tls(tmp_path: Path) -> None:
    script = tmp_path / "t.py"
    script.write_text("")
    code = (
        "import sys; from elastic_run.launcher import cli; code = cli.main(sys.argv[1:]); "
        "assert not {'cryptography', 'elastic_run.rendezvous.identity.contexts'} & set(sys.modules); sys.exit(code)"
    )
    subprocess.run(
        [sys.executable, "-c", code, "--standalone", str(script)], check=True, env={**os.environ}, cwd=tmp_path
    )
