"""Which nodes have another version than the others."""

from elastic_run.launcher.doctor.findings import Python
from elastic_run.launcher.node_check.versions import Versions, differences, versions_of


def versions(torch: str, nccl: str = "2.27.5") -> Versions:
    return versions_of(Python("/p", version="3.11.4", torch=torch, cuda="12.8", nccl=nccl))


def test_equal_versions_are_no_news() -> None:
    assert list(differences({"a#1": versions("2.13.0"), "b#2": versions("2.13.0")})) == []


def test_the_node_that_differs_from_most_is_named_for_each_package() -> None:
    nodes = {"a#1": versions("2.13.0"), "b#2": versions("2.13.0"), "c#3": versions("2.12.0", "2.26.2")}
    assert list(differences(nodes)) == [
        "torch differs: 2.12.0 on c, and 2.13.0 on all others",
        "NCCL differs: 2.26.2 on c, and 2.27.5 on all others",
    ]


def test_of_two_alone_nobody_can_tell_which_is_right() -> None:
    nodes = {"a#1": versions("2.13.0"), "b#2": versions("2.12.0")}
    assert list(differences(nodes)) == ["torch differs: 2.13.0 on a, 2.12.0 on b"]


def test_what_a_node_lacks_is_a_difference_and_a_patch_of_python_is_none() -> None:
    ours = versions_of(Python("/p", version="3.11.4", torch="2.13.0"))
    theirs = versions_of(Python("/p", version="3.11.9", torch="2.13.0", cuda="12.8"))
    assert list(differences({"a": ours, "b": theirs, "c": theirs})) == [
        "CUDA differs: none on a, and 12.8 on all others"
    ]
