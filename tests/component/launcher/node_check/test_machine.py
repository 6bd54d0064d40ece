"""What the figures of a machine mean."""

import dataclasses
import os
from pathlib import Path

from elastic_run.launcher.node_check.machine import Figures, measure, of_figures
from elastic_run.rendezvous.store.endpoint import Endpoint

FINE = Figures(4e8, 0.5, 8 << 30, "/tmp", 2e8, 0.01, 1024)


def problems(**changes: object) -> dict[str, str]:
    figures = dataclasses.replace(FINE, **changes)  # type: ignore[arg-type]  # any field
    return {each.subject: each.text for each in of_figures(figures) if each.grade == "problem"}


def test_a_machine_as_it_should_be_has_no_problem() -> None:
    assert problems() == {}


def test_each_figure_that_fails_is_named() -> None:
    assert problems(cpu=1e6) == {"CPU": "one core hashes 1 MB/s; load 0.5 a core"}
    assert problems(memory=1 << 20) == {"memory": "1 MiB are free"}
    assert problems(disk=1e6) == {"disk": "/tmp takes 1 MB/s, synced"}
    assert problems(disk=None, problems=(("disk", "No space left on device"),)) == {
        "disk": "/tmp: No space left on device"
    }
    assert "do not resolve" in problems(names=None, problems=(("names", "no answer within 10 s"),))["DNS"]
    assert "Cannot assign" in problems(port=None, problems=(("ports", "Cannot assign requested address"),))["ports"]


async def test_this_machine_is_measured_and_what_it_cannot_do_is_told(tmp_path: Path) -> None:
    found = await measure([Endpoint("localhost")], "127.0.0.1", tmp_path)
    assert found.problems == () and found.disk and found.cpu > 0 and found.folder == str(tmp_path)
    assert os.listdir(tmp_path) == [], "nothing stays behind"  # noqa: PTH208  it is quick
    other = await measure([Endpoint("no-such-name.invalid")], "192.0.2.1", None)
    assert {name for name, _ in other.problems} == {"names", "ports"}
