"""The first host of a Slurm allocation."""

import pytest

from elastic_run.launcher.options.slurm import allocation_host, first_host


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("node7", "node7"),
        ("node7,node8", "node7"),
        ("gpu[001-003,007],login1", "gpu001"),
        ("gpu[007,001-003]", "gpu007"),
        ("gpu[12]", "gpu12"),
        ("login1,gpu[001-003]", "login1"),
        ("rack[0-3]node[01-16]", "rack0node01"),
        ("gpu[3-5].cluster.example.org", "gpu3.cluster.example.org"),
        ("my-host-[08-10]", "my-host-08"),
        (" gpu[1-2]\n", "gpu1"),
    ],
)
def test_the_first_host_of_a_list_keeps_its_leading_zeros(nodelist: str, host: str) -> None:
    assert first_host(nodelist) == host


@pytest.mark.parametrize("nodelist", ["", ",a", "gpu[", "gpu[1-2", "gpu[]", "gpu[a-b]", "gpu]1", "a b", "host:22"])
def test_a_text_that_is_no_list_of_hosts_is_refused(nodelist: str) -> None:
    with pytest.raises(ValueError, match="not a Slurm list of hosts"):
        first_host(nodelist)


def test_outside_of_slurm_there_is_no_host() -> None:
    assert allocation_host({"PATH": "/bin"}) is None
    assert allocation_host({"SLURM_JOB_NODELIST": ""}) is None


def test_the_allocation_is_read_from_the_job_and_else_from_the_old_name() -> None:
    assert allocation_host({"SLURM_JOB_NODELIST": "a[1-2]", "SLURM_NODELIST": "b1"}) == "a1"
    assert allocation_host({"SLURM_NODELIST": "b1"}) == "b1"
