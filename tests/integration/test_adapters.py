"""Jobs of scripts that know nothing of PyTorch, with the environment that their framework's adapter makes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny_adapter.py"

TELL = """
import json, os, sys
print("told", json.dumps({"rank": os.environ["RANK"], "environment": dict(os.environ), "modules": list(sys.modules)}))
"""

TINY = """
pid = None
class TinyError(RuntimeError):
    pass
"""

ONE_FAILS_AND_THE_OTHER_LOSES_IT = """
import os, time
from pathlib import Path
import tiny
if os.environ["TINY_ID"] == "1":
    Path("pid").write_text(str(os.getpid()))
    Path("pid").rename("gone")
    raise tiny.TinyError("rank 0 went away")
while not Path("gone").exists() or Path("/proc", Path("gone").read_text()).exists():
    time.sleep(0.01)
raise ValueError("the cause")
"""


def run(folder: Path, script: str, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "OMP_"))}
    return subprocess.run(
        [sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", *flags, "train.py"],
        cwd=folder,
        env={**environment, "XDG_CACHE_HOME": str(folder / "cache"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    """The environments of the workers, by rank."""
    assert done.returncode == 0, done.stderr
    words = [json.loads(line.partition("told ")[2]) for line in done.stdout.splitlines() if "told {" in line]
    return {each["rank"]: each["environment"] for each in words}


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A folder in which a framework and its adapter are installed."""
    site = tmp_path / "site-packages"
    for name, version in (("tiny", "1.1"), ("tiny_adapter", "0.3")):
        facts = site / f"{name}-{version}.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "entry_points.txt").write_text("[elastic_run.adapters]\ntiny = tiny_adapter:Tiny\n")
    (site / "tiny_adapter.py").write_text(EXAMPLE.read_text())
    (site / "tiny.py").write_text(TINY)
    return str(site)


def test_without_a_framework_a_worker_has_only_the_plain_variables(tmp_path: Path) -> None:
    environments = told(run(tmp_path, TELL, "--framework=none", "--rdzv-id=plain"))
    assert environments.keys() == {"0", "1"}
    for rank, environment in environments.items():
        assert not [name for name in environment if name.startswith(("TORCH", "ROLE_RANK", "OMP_"))]
        assert (environment["LOCAL_RANK"], environment["WORLD_SIZE"]) == (rank, "2")
        assert (environment["ELASTIC_RUN_JOB_ID"], environment["ELASTIC_RUN_RESTART_COUNT"]) == ("plain", "0")
        assert environment["MASTER_ADDR"] == "127.0.0.1" and int(environment["MASTER_PORT"]) > 0
        assert environment["ELASTIC_RUN_AGENT"].startswith("@")


def test_pytorchs_workers_do_not_see_what_takes_the_place_of_torchruns_names(tmp_path: Path) -> None:
    for environment in told(run(tmp_path, TELL)).values():
        assert not {"ELASTIC_RUN_JOB_ID", "ELASTIC_RUN_RESTART_COUNT"} & environment.keys()
        assert environment["TORCHELASTIC_RESTART_COUNT"] == "0"


@pytest.mark.parametrize("framework", ["tiny", "mine.py:Tiny"])
def test_an_adapter_of_a_package_or_a_file_makes_the_workers_environment(
    tmp_path: Path, tiny: str, framework: str
) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text())
    script = f"import tiny\n{TELL}"
    environments = told(run(tmp_path, script, f"--framework={framework}", PYTHONPATH=tiny, TINY_DEBUG="1"))
    assert {rank: environment["TINY_ID"] for rank, environment in environments.items()} == {"0": "0", "1": "1"}
    for environment in environments.values():
        assert environment["TINY_MEET"] == f"127.0.0.1:{environment['MASTER_PORT']}"
        assert (environment["TINY_SIZE"], environment["TINY_THREADS"]) == ("2", "1")
        assert not [name for name in environment if name.startswith("TORCH") or name == "TINY_DEBUG"]


def test_what_an_adapter_declares_is_imported_ahead(tmp_path: Path, tiny: str) -> None:
    flags = ("--framework=tiny", "--explain-preload")
    explained = run(tmp_path, "import tiny\nprint('run')\n", *flags, PYTHONPATH=tiny).stdout
    assert "  tiny\n" in explained, explained
    explained = run(tmp_path, "import tiny\nprint('run')\n", flags[1], PYTHONPATH=tiny).stdout
    assert "  tiny\n" not in explained and "--preload=tiny" in explained


def test_what_an_adapter_calls_a_consequence_is_not_the_root_cause(tmp_path: Path, tiny: str) -> None:
    flags = ("--framework=tiny", "--max-restarts=0")
    done = run(tmp_path, ONE_FAILS_AND_THE_OTHER_LOSES_IT, *flags, PYTHONPATH=tiny)
    assert done.returncode == 1
    assert "root cause: rank 0" in done.stderr + done.stdout, done.stderr
    assert "ValueError: the cause" in (done.stderr + done.stdout).partition("root cause")[2]


def test_an_adapter_has_a_hint_for_its_own_failures(tmp_path: Path, tiny: str) -> None:
    script = "import tiny\nraise tiny.TinyError('this model wants 4 threads')\n"
    done = run(tmp_path, script, "--framework=tiny", "--max-restarts=0", PYTHONPATH=tiny)
    assert "hint: set TINY_THREADS to that number" in done.stderr + done.stdout
