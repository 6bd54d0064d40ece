"""What is installed is whole: a wheel and a source distribution are built; the wheel, installed alone, runs a job."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = (
    "elastic_agent",
    "rendezvous",
    "master",
    "adapters",
    "launcher",
    "src",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)


pytestmark = pytest.mark.xdist_group("package")  # the wheel is built once


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that nothing of an earlier build gets into what is built."""
    folder = tmp_path_factory.mktemp("package") / "source"
    folder.mkdir()
    for part in PARTS:
        source, copy = ROOT / part, folder / part
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, copy)
    return folder


def built(kind: str, source: Path, into: Path) -> Path:
    """The "sdist" or the "wheel" of a folder, by the build backend that is installed here."""
    build = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    into.mkdir()
    command = [sys.executable, "-c", build, str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (found,) = (path for path in into.iterdir() if path.is_file())
    return found


@pytest.fixture(scope="module")
def wheel(sources: Path) -> Path:
    return built("wheel", sources, sources.parent / "wheel")


def test_it_holds_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("elastic_run/")}
    sources = {
        f"elastic_run/{file.relative_to(ROOT / 'src' / 'elastic_run')}"
        for file in (ROOT / "src" / "elastic_run").glob("*")
        if file.is_file()
    }
    for part in PARTS[:5]:
        sources |= {f"elastic_run/{file.relative_to(ROOT)}" for file in (ROOT / part).rglob("*.py")}
    code = {name for name in found if name.endswith(".py")}
    assert code == {name for name in sources if name.endswith(".py")}
    others = {Path(name).name for name in found - code}
    assert others == {"py.typed", "elastic_run_etcd.proto", "elastic_run_etcd_pb2.pyi"}


def test_an_index_page_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")] == []
    assert "run unchanged" in text


def test_a_source_distribution_gives_the_same_wheel(sources: Path, wheel: Path, tmp_path: Path) -> None:
    """The package is made of links to the folders above it; a source distribution has to hold what they lead to."""
    archive = built("sdist", sources, tmp_path / "sdist")
    subprocess.run(["tar", "--extract", "--file", str(archive), "--directory", str(tmp_path)], check=True, timeout=60)
    (unpacked,) = tmp_path.glob("elastic_run-*")
    assert contents(built("wheel", unpacked, tmp_path / "wheel")) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    """The checksum of each file of the package, and of what an index page shows."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if not each.filename.endswith("/RECORD")}


def test_installed_elsewhere_it_runs_a_job(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True, timeout=300)
    (tmp_path / "train.py").write_text("import elastic_run, os; print(elastic_run.__file__, os.environ['RANK'])\n")
    command = [sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", "train.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line.partition("] ")[2] for line in done.stdout.splitlines())
    assert lines == [f"{target / 'elastic_run' / '__init__.py'} {rank}" for rank in (0, 1)]


def test_make_asks_for_torch_without_cuda_and_says_where_it_is_where_pip_does_not_find_it(tmp_path: Path) -> None:
    # As on PyPI alone: pip finds no build with that local version. What it is asked for is noted.
    pip = tmp_path / "python"
    pip.write_text(
        "#!/bin/sh\n"
        f'case "$*" in "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";; '
        f'*"pip install"*) echo "$*" >>{tmp_path}/asked; case "$*" in *+cpu*) exit 1;; esac;; esac\n'
    )
    pip.chmod(0o755)
    command = ["make", f"VENV={tmp_path}/venv", f"PYTHON={pip}", f"{tmp_path}/venv/bin/.demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (tmp_path / "asked").read_text() == "-m pip install --quiet --constraint tests/lock.txt torch==2.13.0+cpu\n"
    assert "set PIP_EXTRA_INDEX_URL" in done.stdout and "make TORCH=torch==2.13.0" in done.stdout
