"""How much memory a process may have, where its control groups are of either version."""

import os
from pathlib import Path

import pytest

from elastic_run.rendezvous.host.control_groups import folders_of, usable_memory, used_memory

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def make_group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"memory.{name}").write_text(f"{content}\n")


def usable(tmp_path: Path, text: str) -> int:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(text)
    return usable_memory(tmp_path / "groups", proc)


def test_the_narrowest_group_above_a_process_counts(tmp_path: Path) -> None:
    make_group(tmp_path / "groups/job/pod", max="max")
    make_group(tmp_path / "groups/job", max="4096")
    make_group(tmp_path / "groups", max="8192")
    assert usable(tmp_path, "0::/job/pod\n") == 4096


def test_of_the_first_version_the_memorys_own_folders_count(tmp_path: Path) -> None:
    make_group(tmp_path / "groups/memory/job", limit_in_bytes="4096")
    make_group(tmp_path / "groups/memory", limit_in_bytes=str((1 << 63) - 4096))
    assert usable(tmp_path, "5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n") == 4096


@pytest.mark.parametrize("text", ["", "nonsense\n", "0::/gone\n", "0::/../../etc\n"])
def test_without_a_group_that_limits_it_all_of_the_machine_is_there(tmp_path: Path, text: str) -> None:
    assert usable(tmp_path, text) == MACHINE


def test_what_the_kernel_can_take_back_is_not_used(tmp_path: Path) -> None:
    make_group(tmp_path / "second", current="1000", stat="inactive_file 300\nactive_file 200")
    make_group(tmp_path / "first", usage_in_bytes="1000", stat="active_file 1\ntotal_active_file 400")
    assert used_memory(tmp_path / "second") == 500
    assert used_memory(tmp_path / "first") == 600


def test_a_process_that_has_gone_has_no_groups(tmp_path: Path) -> None:
    assert list(folders_of(1 << 22, "memory", tmp_path, tmp_path)) == []
