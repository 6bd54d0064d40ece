"""Jobs whose workers read files by record: each record counts once, whatever worker is killed."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SECONDS = 240.0
"""For a job, on a busy machine: fresh interpreters, and loops that are compiled for the first time."""

SCRIPT = """
    import json, os, signal
    from pathlib import Path
    from elastic_run import context, data

    here, out = context(), Path("out")
    clicks = data.open("data", bad=0.01)
    done = 0
    with clicks.shards("clicks", shard_size=250, epochs=2, commit="ack") as shards:
        for shard in shards:
            columns = shard.read()
            part = out / f"{shard.key}.{here.round}-{here.rank}.part"
            part.write_text(json.dumps(columns["user"].tolist()))
            done += 1
            if here.round == 1 and here.rank == 1 and done == 3:
                os.kill(os.getpid(), signal.SIGKILL)  # written, and not done
            if here.round == 1 and here.rank == 0 and done == 3:
                signal.pause()  # until the other one is dead: it gets its shards
            part.replace(out / f"{shard.key}.json")
            shard.done()
    print("rank", here.rank, "skipped", clicks.skipped, "of", len(clicks), flush=True)
"""


def run(folder: Path, script: str, *words: str) -> tuple[int, str]:
    (folder / "script.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "elastic_run", "--nproc-per-node=2", "--framework=none", *words, "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two exports with 10,000 users in all, quoted line ends, and one bad row."""
    (tmp_path / "data").mkdir()
    (tmp_path / "out").mkdir()
    for name, users in (("b.csv", range(6_000, 10_000)), ("a.csv", range(6_000))):
        lines = (f'{user if user != 7_000 else "seven"},"text\r\nof ""{user}"""\r\n' for user in users)
        (tmp_path / "data" / name).write_text("\ufeffuser,text\r\n" + "".join(lines), newline="")
    return tmp_path


def test_each_record_is_in_the_outputs_once_an_epoch_after_a_worker_was_killed(folder: Path) -> None:
    code, said = run(folder, SCRIPT, "--max-restarts=2")
    assert code == 0, said
    assert "of 10000" in said and "round 2" in said, said
    outputs = sorted((folder / "out").glob("*.json"))
    assert len(outputs) == 2 * 40
    for epoch in ("e00000", "e00001"):
        users = [user for each in outputs if each.name.startswith(epoch) for user in json.loads(each.read_text())]
        assert sorted(users) == [user for user in range(10_000) if user != 7_000]
    assert ".1-1" in {each.suffixes[-2] for each in (folder / "out").glob("*.part")}


def test_a_restart_that_finds_other_files_is_refused(folder: Path) -> None:
    added = 'Path("data/c.csv").write_text("user,text\\n1,x\\n"); os.kill('
    code, said = run(folder, SCRIPT.replace("os.kill(", added), "--max-restarts=1")
    assert code != 0, said
    assert "ShardsRefused: dataset 'clicks' is declared in two ways: " in said, said
