"""What a node has left, by files such as the kernel has."""

from pathlib import Path

import pytest

from elastic_run.rendezvous.host.control_groups import free_memory

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """One with 8 GiB available, whose control group `/job/worker` has no limit yet."""
    write(tmp_path / "proc/meminfo", f"MemTotal: 99999999 kB\nMemAvailable: {8 << 20} kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/job/worker\n")
    for group in ("job", "job/worker"):
        limit(tmp_path / "groups" / group, "max", 3 * GIB, GIB)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def limit(group: Path, most: object, used: int, files: int) -> None:
    write(group / "memory.max", f"{most}\n")
    write(group / "memory.current", f"{used}\n")
    write(group / "memory.stat", f"anon 1\ninactive_file {files // 2}\nactive_file {files // 2}\n")


def left(machine: Path) -> int:
    return free_memory(machine / "groups", machine / "proc")


def test_without_a_limit_it_is_what_the_machine_has(machine: Path) -> None:
    assert left(machine) == 8 * GIB


@pytest.mark.parametrize("group", ["job", "job/worker"])
def test_each_control_group_around_the_process_bounds_it_and_cached_files_are_free(machine: Path, group: str) -> None:
    limit(machine / "groups" / group, 4 * GIB, 3 * GIB, GIB)
    assert left(machine) == 2 * GIB


def test_the_older_control_groups_count_too(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "5:cpu,memory:/job\n4:pids:/job\n")
    group = machine / "groups/memory/job"
    write(group / "memory.limit_in_bytes", f"{5 * GIB}")
    write(group / "memory.usage_in_bytes", f"{6 * GIB}")
    write(group / "memory.stat", f"total_inactive_file {GIB}\ntotal_active_file {GIB}\n")
    assert left(machine) == GIB


def test_nothing_is_left_where_a_group_has_used_more_than_it_may(machine: Path) -> None:
    limit(machine / "groups/job", 2 * GIB, 4 * GIB, 0)
    assert left(machine) == 0


def test_on_this_machine_there_is_some() -> None:
    assert free_memory() > 1 << 20
