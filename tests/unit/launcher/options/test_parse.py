"""What the command line asks for, and what is refused before anything starts."""

import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run import __version__
from elastic_run.adapters import accelerators
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options import parse as parsing
from elastic_run.launcher.options.command import derived_job_id
from elastic_run.launcher.options.flags import FLAGS, Flag, did_you_mean, scan
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.options.preflight import ONLY_ONCE, check_platform, workers_python
from elastic_run.launcher.settings import Command, Nodes, Options, ServerCount, Std, join_command
from elastic_run.master.servers.placement import MOST_WANTED
from elastic_run.rendezvous.roles import Role
from elastic_run.rendezvous.store.endpoint import Endpoint

USER = {"USER": "ada", "PATH": "/usr/bin:/bin"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of every test: empty but for a script."""
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(line: str = "", command: str = "train.py", **environ: str) -> Options:
    return parse(shlex.split(f"{line} {command}"), USER | environ)


def refusal(line: str = "", command: str = "train.py", **environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        options(line, command, **environ)
    return str(caught.value)


# -- how a line is split ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["node-name", "role", "topology"])
def test_a_label_that_the_other_nodes_could_not_read_is_refused(flag: str) -> None:
    assert f"--{flag} has 201 characters, and takes at most 200" == refusal(f"--{flag}={'x' * 201}")
    assert f"--{flag} has a byte that is not UTF-8 (\\udc80): leave it out" == refusal(f"--{flag}=a\udc80")
    assert f"--{flag} has a character that cannot be printed (\\x07): leave it out" == refusal(f"--{flag}=a\x07")


def test_the_script_alone_is_a_whole_command_line() -> None:
    it = options()
    assert (it.command.kind, it.command.target, it.command.args) == ("script", "train.py", ())
    assert (it.nodes.minimum, it.nodes.maximum, it.nodes.unit, it.nproc) == (1, 1, 1, 1)
    assert (it.max_restarts, it.same_failure_limit, it.own_failure_limit, it.scale_up) == (3, 3, 2, "now")
    assert (it.store.kind, it.notes) == ("memory", ())


@pytest.mark.parametrize(
    "line",
    [
        "--nproc-per-node=4",
        "--nproc_per_node=4",
        "--nproc-per-node 4",
        "--nproc_per-node 4",
        "--nproc=4",
        "--nproc-per-node=2 --nproc_per_node=4",
    ],
)
def test_a_flag_may_be_written_in_many_ways_and_the_last_one_counts(line: str) -> None:
    assert options(line).nproc == 4


@pytest.mark.parametrize("line", ["--max-restarts=3", "--same-failure-limit=3"])
def test_who_says_how_often_to_restart_is_obeyed(line: str) -> None:
    assert options(line).own_failure_limit == 0


@pytest.mark.parametrize("line", ["-r 3", "-r3", "-r=3", "--redirects=3", "--redirects 3"])
def test_single_letters_take_their_value_attached_or_apart(line: str) -> None:
    assert options(line).output.redirects == (Std.ALL,)


def test_letters_may_be_bundled() -> None:
    it = options("-mr3", "train")
    assert (it.command.kind, it.output.redirects) == ("module", (Std.ALL,))


def test_what_follows_the_script_belongs_to_it() -> None:
    it = options("--nnodes=2", "train.py --nnodes=9 --r 1 -m --no --unknown -- --help")
    assert it.nodes.maximum == 2
    assert it.command.args == ("--nnodes=9", "--r", "1", "-m", "--no", "--unknown", "--", "--help")


def test_a_launchers_flag_after_a_script_that_does_not_name_it_is_told(folder: Path) -> None:
    (told,) = options("--nnodes=2", "train.py --lr=1 --nproc_per_node=2").notes
    assert (
        told
        == "--nproc_per_node=2 stands after train.py and is its argument: for elastic-run write it before the script"
    )
    assert options("", "train.py --role=a --trace nnodes").notes == (), "scripts have such flags, too"
    (folder / "train.py").write_text("parser.add_argument('--nproc-per-node')")
    assert options("", "train.py --nproc_per_node=2").notes == ()


def test_two_dashes_end_the_flags() -> None:
    assert options("--nnodes=2 --", "train.py -x").command.args == ("-x",)


@given(st.lists(st.text(min_size=1)))
def test_the_scripts_arguments_are_never_touched(arguments: list[str]) -> None:
    assert scan(["--nnodes=2", "train.py", *arguments], {}).command == ("train.py", *arguments)


@pytest.mark.parametrize("flag", [flag.name for flag in FLAGS if flag.metavar and not flag.bare])
def test_a_value_that_is_missing_is_asked_for(flag: str) -> None:
    with pytest.raises(UsageError, match=f"^--{flag} needs a value: write --{flag}="):
        scan([f"--{flag}"], {})
    with pytest.raises(UsageError, match=f"^--{flag} needs a value: write --{flag}="):
        scan([f"--{flag}", "--standalone", "train.py"], {})


def test_a_negative_number_is_a_value() -> None:
    assert refusal("--max-restarts -1") == "--max-restarts=-1 is out of range: it must be at least 0"


def test_a_switch_takes_no_value() -> None:
    assert "--standalone takes no value" in refusal("--standalone=yes")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--nnode_s=2", "--nnodes"),
        ("--nodes=2", "--nnodes"),
        ("-nnodes=2", "--nnodes"),
        ("--rdzv-endpiont=a", "--rdzv-endpoint"),
        ("--nprocs=2", "--nproc-per-node"),
    ],
)
def test_an_unknown_flag_is_refused_with_the_nearest_one(typed: str, meant: str) -> None:
    message = refusal(typed)
    assert message.startswith(f"unknown flag {typed.split('=')[0]}")
    assert f"did you mean {meant}?" in message
    assert "Flags of your script go after its name" in message


def test_an_unknown_flag_that_is_near_to_none_is_refused_all_the_same() -> None:
    assert refusal("--zzz").startswith("unknown flag --zzz. Flags of your script")


def test_an_abbreviation_of_several_flags_is_refused_with_their_names() -> None:
    assert refusal("--rdzv-e=a --rdzv=b") == (
        "--rdzv is ambiguous: write --rdzv-endpoint or --rdzv-id or --rdzv-backend or --rdzv-conf"
    )


def test_an_abbreviation_that_torchrun_understands_is_not_spoilt_by_our_own_flags() -> None:
    assert options("--node=1 --nnodes=2").node_rank == 1


def test_an_empty_value_is_refused_unless_torchrun_means_nothing_by_it() -> None:
    assert refusal("--nnodes=") == "--nnodes= is empty: write --nnodes=N|MIN:MAX, or leave the flag out"
    it = options("--rdzv-endpoint= --rdzv-conf= --local-ranks-filter= --duplicate-stdout-filters=")
    assert (it.store.kind, it.output.shown_ranks, it.output.stdout_filters) == ("memory", None, ())


def test_no_script_is_an_error_that_shows_where_it_goes() -> None:
    assert refusal("--nnodes=2", "") == (
        "no script is given: write elastic-run [flags] train.py [the script's own arguments]"
    )


# -- the environment's mirrors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.mirror], ids=attrgetter("mirror"))
def test_every_mirror_gives_its_flag_and_the_command_line_wins(flag: Flag) -> None:
    value = flag.choices[0] if flag.choices else "1"
    from_environment = scan(["train.py"], {flag.mirror: value})
    assert from_environment.given[flag.name].text == value
    assert from_environment.source(flag.name) == f"{flag.mirror}={value}"
    typed = f"--{flag.name}={value}" if flag.metavar else f"--{flag.name}"
    assert scan([typed, "train.py"], {flag.mirror: "0"}).source(flag.name) == typed


def test_a_mirror_of_a_switch_is_on_off_or_refused() -> None:
    assert options(PET_VIRTUAL_LOCAL_RANK="1").virtual_local_rank
    assert not options(PET_VIRTUAL_LOCAL_RANK="0").virtual_local_rank
    assert refusal(PET_VIRTUAL_LOCAL_RANK="yes").startswith("PET_VIRTUAL_LOCAL_RANK=yes is neither on nor off")


def test_an_empty_mirror_says_nothing() -> None:
    assert options(PET_NNODES="").nodes.maximum == 1


def test_a_message_names_the_mirror_that_was_wrong() -> None:
    assert refusal(PET_NNODES="4:2").startswith("PET_NNODES=4:2 has its minimum above its maximum")


def test_our_own_flags_have_no_mirror() -> None:
    assert options(PET_NODE_UNIT="3").nodes.unit == 1


# -- size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "least", "most"), [("1", 1, 1), ("2:8", 2, 8), ("4:4", 4, 4), (" 2 ", 2, 2)])
def test_nodes_are_a_number_or_a_range(text: str, least: int, most: int) -> None:
    nodes = options(f"--nnodes='{text}'").nodes
    assert (nodes.minimum, nodes.maximum) == (least, most)


def test_a_range_of_one_number_is_written_as_that_number() -> None:
    assert [str(options(f"--nnodes={text}").nodes) for text in ("2", "2:2", "2:8")] == ["2", "2", "2:8"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("4:2", "minimum above its maximum: write --nnodes=2:4"),
        ("0", "at least one node: write --nnodes=1"),
        ("0:4", "at least one node: write --nnodes=1:4"),
        ("3:0", "maximum of 0: write --nnodes=3 or more"),
        ("a:b", "neither a number nor MIN:MAX: write --nnodes=4 or --nnodes=2:8"),
        ("-2", "neither a number nor MIN:MAX"),
        ("2:", "neither a number nor MIN:MAX"),
        ("1:1000000000", "is more nodes than a job can have: at most 999999999"),
        ("1:2:3", "neither a number nor MIN:MAX"),
        ("2.5", "neither a number nor MIN:MAX"),
    ],
)
def test_nodes_that_cannot_be_are_refused_with_what_to_write(text: str, advice: str) -> None:
    message = refusal(f"--nnodes={text}")
    assert message.startswith(f"--nnodes={text}")
    assert advice in message


def test_a_node_unit_needs_a_multiple_within_the_range() -> None:
    assert options("--nnodes=2:5 --node-unit=4").nodes.unit == 4
    assert refusal("--nnodes=5:7 --node-unit=4") == (
        "--node-unit=4: no multiple of 4 lies within --nnodes=5:7: change one of the two, for example --nnodes=5:8"
    )
    assert "at least 1" in refusal("--node-unit=0")


@pytest.mark.parametrize("text", ["0", "-1"])
def test_a_node_needs_a_worker(text: str) -> None:
    assert "a node needs at least one worker" in refusal(f"--nproc-per-node={text}")


def test_workers_by_word_are_counted_and_the_word_is_kept() -> None:
    it = options("--nproc-per-node=cpu")
    assert (it.nproc, it.nproc_spec) == (len(os.sched_getaffinity(0)), "cpu")


@pytest.mark.parametrize("gpus", [6, 0])
def test_auto_is_the_gpus_or_else_the_cpus(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(environ: Mapping[str, str]) -> int:
        return gpus

    monkeypatch.setattr("elastic_run.adapters.accelerators.count_gpus", counted)
    assert options("--nproc-per-node=auto").nproc == (gpus or len(os.sched_getaffinity(0)))
    if gpus:
        assert options("--nproc-per-node=gpu").nproc == gpus
    else:
        assert "no NVIDIA GPU is visible" in refusal("--nproc-per-node=gpu")


def test_other_devices_are_refused_with_what_to_do() -> None:
    assert refusal("--nproc-per-node=xpu").endswith("give the number")
    assert "did you mean gpu?" in refusal("--nproc-per-node=gpus")


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 3),
        ("", 0),
        ("0", 1),
        ("2,0", 2),
        ("0,1,2,3", 3),
        ("0,-1,1", 1),
        ("-1", 0),
        ("NoDevFiles", 0),
        ("GPU-1a,MIG-2b", 2),
    ],
)
def test_gpus_are_device_files_that_the_environment_lets_through(
    tmp_path: Path, visible: str | None, count: int
) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia5", "nvidiactl", "nvidia-uvm", "nvidia0x"):
        (tmp_path / "dev" / name).touch()
    assert accelerators.count_gpus({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}, tmp_path) == count


def test_without_device_files_the_driver_is_asked_and_without_a_driver_there_are_none(tmp_path: Path) -> None:
    assert accelerators.count_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path) == 0
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / name).mkdir(parents=True)
    assert accelerators.count_gpus({}, tmp_path) == 2


def test_standalone_is_one_machine() -> None:
    it = options("--standalone --nnodes=1:4 --rdzv-endpoint=a:1 --rdzv-backend=c10d")
    assert (it.store.kind, it.nodes.maximum) == ("memory", 1)
    assert it.notes == (
        "--nnodes=1:4 is read as 1: --standalone means this machine only",
        "--rdzv-endpoint=a:1 has no effect: a job of one node keeps its store in the agent",
    )
    assert "asks for 2" in refusal("--standalone --nnodes=2")


# -- the store --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["c10d", "etcd", "etcd-v2", "static"])
def test_every_backend_means_our_store_at_the_endpoint(backend: str) -> None:
    it = options(f"--nnodes=2 --rdzv-backend={backend} --rdzv-endpoint=h1:29400")
    assert (it.store.kind, it.store.endpoints) == ("endpoints", (Endpoint("h1", 29400),))
    assert it.notes == (
        ("--rdzv-backend=etcd-v2 is read as etcd: elastic-run uses version 3 of its protocol",)
        if backend == "etcd-v2"
        else ()
    )


def test_another_backend_is_refused() -> None:
    assert "did you mean etcd?" in refusal("--rdzv-backend=etdc")


def test_several_endpoints_and_a_default_port() -> None:
    store = options("--nnodes=3 --rdzv-endpoint=h1,h2:1,[::1]:2").store
    assert store.endpoints == (Endpoint("h1", 2379), Endpoint("h2", 1), Endpoint("::1", 2))


def test_an_endpoint_serves_one_node_as_well() -> None:
    assert options("--rdzv-endpoint=h1").store.kind == "endpoints"


@pytest.mark.parametrize("endpoint", ["h1:port", "h1:70000", "h1,,h2", "a b", "[::1"])
def test_a_malformed_endpoint_is_refused(endpoint: str) -> None:
    assert refusal(f"--nnodes=2 --rdzv-endpoint='{endpoint}'").startswith("--rdzv-endpoint: endpoint ")


def test_port_0_is_a_store_of_its_own_for_one_node_and_refused_for_several() -> None:
    assert options("--rdzv-backend=c10d --rdzv-endpoint=localhost:0").store.kind == "memory"
    assert "give a port" in refusal("--nnodes=2 --rdzv-endpoint=localhost:0")


def test_several_nodes_without_an_endpoint_meet_at_this_machine() -> None:
    store = options("--nnodes=2:8").store
    assert (store.kind, store.endpoints) == ("implicit", ())


def test_under_slurm_they_meet_at_the_first_host_of_the_allocation() -> None:
    store = options("--nnodes=2:8", SLURM_JOB_NODELIST="gpu[07-09]").store
    assert (store.kind, store.endpoints) == ("implicit", (Endpoint("gpu07", 2379),))
    assert "name the store with --rdzv-endpoint" in refusal("--nnodes=2", SLURM_JOB_NODELIST="gpu[")
    assert options(SLURM_JOB_NODELIST="gpu[07-09]").store.kind == "memory"


@pytest.mark.parametrize(
    ("line", "endpoint"),
    [
        ("--master-addr=h1", Endpoint("h1", 29500)),
        ("--master-addr=h1 --master-port=7", Endpoint("h1", 7)),
        ("--master-addr=[fe80::1] --master-port=7", Endpoint("fe80::1", 7)),
    ],
)
def test_the_masters_address_is_the_store_of_several_nodes(line: str, endpoint: Endpoint) -> None:
    store = options(f"--nnodes=2 {line}").store
    assert (store.kind, store.endpoints) == ("endpoints", (endpoint,))


def test_the_masters_port_alone_is_that_of_a_store_which_other_machines_can_reach() -> None:
    store = options("--nnodes=2 --master-port=7").store
    assert (store.kind, store.endpoints, store.port) == ("implicit", (), 7)
    store = options("--nnodes=2 --master-port=7", SLURM_JOB_NODELIST="gpu[07-09]").store
    assert (store.kind, store.endpoints) == ("implicit", (Endpoint("gpu07", 7),))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_masters_address_that_is_loopback_is_warned_of(host: str) -> None:
    (note,) = options(f"--nnodes=2 --master-addr={host}").notes
    assert f"--master-addr={host} is a loopback address" in note
    assert options("--nnodes=2 --master-addr=h1").notes == ()


def test_the_masters_address_says_nothing_where_it_is_not_needed() -> None:
    assert options("--master-port=7").notes == (
        "--master-port=7 has no effect: a job of one node keeps its store in the agent",
    )
    it = options("--nnodes=2 --rdzv-endpoint=h1 --master-addr=h2")
    assert it.store.endpoints == (Endpoint("h1"),)
    assert it.notes == ("--master-addr=h2 has no effect: --rdzv-endpoint says where the store is",)


@pytest.mark.parametrize("port", ["0", "70000", "-1"])
def test_a_port_out_of_range_is_refused(port: str) -> None:
    assert refusal(f"--nnodes=2 --master-port={port}") == (
        f"--master-port={port} is out of range: ports are 1 to 65535"
    )


def test_the_place_of_a_node_lies_within_the_range() -> None:
    assert options("--nnodes=2 --node-rank=1").node_rank == 1
    assert options("--nnodes=2").node_rank is None
    assert "has the ranks 0 to 1" in refusal("--nnodes=2 --node-rank=2")


def test_a_local_address_loses_its_brackets() -> None:
    assert options("--local-addr=[fd00::7]").local_addr == "fd00::7"
    assert "neither an address nor a host name" in refusal("--local-addr='a b'")


# -- the id -----------------------------------------------------------------------------------------------------


def test_a_given_id_is_taken_as_it_is() -> None:
    it = options("--rdzv-id=my/job")
    assert (it.job_id, it.job_id_given) == ("my/job", True)


def test_the_same_command_has_the_same_id_on_every_machine() -> None:
    first = options("--nnodes=2 --local-addr=10.0.0.1", "train.py --lr 1")
    second = options("--nnodes=2 --local-addr=10.0.0.2", "./train.py --lr 1")
    assert first.job_id == second.job_id
    assert not first.job_id_given
    assert re.fullmatch(r"train-[0-9a-f]{8}", first.job_id)


def test_another_command_user_or_submission_is_another_job() -> None:
    ids = {
        options(command="train.py --lr 1").job_id,
        options(command="train.py --lr 2").job_id,
        options(command="train.py '--lr 1'").job_id,
        options("--run-path", "train.py --lr 1").job_id,
        options(command="train.py --lr 1", USER="eve").job_id,
        options(command="train.py --lr 1", SLURM_JOB_ID="17").job_id,
    }
    assert len(ids) == 6


@pytest.mark.parametrize("target", ["/a b/çä.py", "...", "", "x" * 300])
def test_a_derived_id_is_short_and_plain(target: str) -> None:
    job_id = derived_job_id(Command("script", target, (), "python"), "ada")
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,60}", job_id)


# -- timing -----------------------------------------------------------------------------------------------------


def test_times_are_set_by_rdzv_conf() -> None:
    it = options("--rdzv-conf='last_call=0.5, settle=0,lease_ttl=4,join_timeout=30'")
    assert (it.timing.last_call_timeout, it.timing.settle, it.timing.lease_ttl) == (0.5, 0.0, 4)
    assert (it.timing.join_timeout, it.timing.recovery_timeout) == (30.0, 600.0)
    assert isinstance(it.timing.lease_ttl, int)


def test_the_policy_is_what_was_asked_for() -> None:
    policy = options("--nnodes=2:8 --node-unit=2 --scale-up=never --rdzv-conf=settle=1,scale_up_interval=2").policy
    assert (policy.min_nodes, policy.max_nodes, policy.node_unit, policy.scale_up) == (2, 8, 2, "never")
    assert (policy.settle, policy.scale_up_interval, policy.last_call) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("conf", "ttl"),
    [
        ("keep_alive_interval=1,keep_alive_max_attempt=3", 3),
        ("keep_alive_interval=1,keep_alive_max_attempt=1", 2),
        ("keep_alive_interval=2", 6),
        ("keep_alive_max_attempt=2", 10),
    ],
)
def test_torchruns_keep_alive_becomes_the_leases_life(conf: str, ttl: int) -> None:
    it = options(f"--rdzv-conf={conf}")
    assert it.timing.lease_ttl == ttl
    assert f"read as lease_ttl={ttl}" in it.notes[0]


def test_our_own_key_wins_over_torchruns() -> None:
    timing = options("--rdzv-conf=timeout=9,join_timeout=8,keep_alive_interval=9,lease_ttl=4").timing
    assert (timing.join_timeout, timing.lease_ttl) == (8.0, 4)
    assert options("--rdzv-conf=timeout=9").timing.join_timeout == 9.0


@pytest.mark.parametrize(
    ("conf", "hosted"), [("", True), ("is_host=true", True), ("is_host=False", False), ("is_host=0", False)]
)
def test_a_node_can_be_told_to_start_no_store(conf: str, hosted: bool) -> None:
    found = options(f"--nnodes=2 --rdzv-endpoint=h1 --rdzv-conf={conf}")
    assert found.store.hosted is hosted
    assert not found.notes


def test_keys_of_torchrun_that_say_nothing_here_are_noted() -> None:
    assert options("--rdzv-conf=rank=1,read_timeout=60").notes == (
        "--rdzv-conf: rank=1 has no effect: --node-rank sets it",
        "--rdzv-conf: read_timeout=60 has no effect: each call to the store has its own short deadline",
    )


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("settel=3", "unknown key 'settel': did you mean settle?"),
        ("zzz=3", "unknown key 'zzz'. Ours are close_timeout"),
        ("settle", "settle has no value: write settle=VALUE"),
        ("settle=", "settle= has no value"),
        ("settle=soon", "settle=soon is not a number of seconds"),
        ("settle=-1", "settle=-1 is not a number of seconds"),
        ("settle=inf", "settle=inf is not a number of seconds"),
        ("settle=nan", "settle=nan is not a number of seconds"),
        ("lease_ttl=1", "lease_ttl=1 must be whole seconds, at least 2"),
        ("lease_ttl=2.5", "lease_ttl=2.5 must be whole seconds"),
    ],
)
def test_a_key_or_value_that_cannot_be_is_refused(conf: str, words: str) -> None:
    message = refusal(f"--rdzv-conf={conf}")
    assert message.startswith("--rdzv-conf: ")
    assert words in message


def test_a_wrong_key_in_the_mirror_is_laid_at_its_door() -> None:
    assert refusal(PET_RDZV_CONF="zzz=1").startswith("PET_RDZV_CONF: unknown key")


@pytest.mark.parametrize(
    ("given_", "seconds"), [("", 30.0), ("--shutdown-timeout=5", 5.0), ("--shutdown-timeout=0", 0.0)]
)
def test_workers_get_so_many_seconds_to_end(given_: str, seconds: float) -> None:
    assert options(given_).shutdown_timeout == seconds


def test_survivors_of_a_failure_are_killed_at_once_unless_they_are_given_seconds() -> None:
    assert options().grace_after_failure == 0.0
    assert options("--grace-after-failure=2.5").grace_after_failure == 2.5
    assert "is not a number of seconds" in refusal("--grace-after-failure=soon")


def test_the_shutdown_timeout_has_a_variable_of_torch() -> None:
    assert options(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="7").shutdown_timeout == 7.0
    assert options("--shutdown-timeout=5", TORCH_ELASTIC_SHUTDOWN_TIMEOUT="7").shutdown_timeout == 5.0
    assert refusal(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="soon").startswith("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon")


# -- failures and changes ---------------------------------------------------------------------------------------


def test_an_explicit_0_restarts_is_0() -> None:
    assert options("--max-restarts=0").max_restarts == 0


def test_more_than_3_restarts_may_be_asked_for_and_words_may_not() -> None:
    assert options("--max-restarts=100").max_restarts == 100
    assert "not a whole number" in refusal("--max-restarts=many")


def test_joining_nodes_are_admitted_at_once_at_a_commit_or_never() -> None:
    assert options("--scale-up=never").scale_up == "never"
    assert options("--scale-up=commit").scale_up == "commit"
    assert "did you mean never?" in refusal("--scale-up=nevver")


def test_a_plan_chooses_within_a_span_that_has_a_default() -> None:
    assert options().plan == "" and str(options().nodes) == "1"
    assert options("--plan=goodput --nnodes=2:8").plan == "goodput"
    assert str(options("--plan=goodput:batch=job").nodes) == "1:64"
    assert "--plan=goodput:batch=job" in options("--plan=goodput:batch=job").given
    assert "write --nnodes=1:8" in refusal("--plan=goodput --nnodes=4")
    assert "without roles" in refusal("--plan=goodput --roles=ps:1,worker:1:4")
    assert "--scale-up=never forbids it" in refusal("--plan=goodput --nnodes=1:4 --scale-up=never")
    assert "there is no plan 'goodputt'" in refusal("--plan=goodputt --nnodes=1:4")


def test_signals_are_named() -> None:
    assert options().signals == (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    assert options("--signals-to-handle=SIGTERM,SIGUSR1").signals == (signal.SIGTERM, signal.SIGUSR1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SIGUSER1", "did you mean SIGUSR1?"),
        ("sigterm", "did you mean SIGTERM?"),
        ("SIGKILL", "no process can handle"),
        ("SIGCHLD", "leave it out"),
    ],
)
def test_signals_that_cannot_be_handled_are_refused(name: str, words: str) -> None:
    assert words in refusal(f"--signals-to-handle={name}")


# -- what is run ------------------------------------------------------------------------------------------------


def test_a_script_that_does_not_exist_is_refused_with_its_neighbours(folder: Path) -> None:
    (folder / "notes.txt").touch()
    assert refusal(command="trian.py") == "there is no script trian.py: did you mean train.py?"
    assert refusal(command="sub/train.py") == "there is no script sub/train.py: the folder sub does not exist."
    assert str(folder) in refusal(command="zzz.py")


def test_a_word_that_could_be_a_module_gets_a_hint() -> None:
    assert "Use -m pkg.main" in refusal(command="pkg.main")
    assert "For the command write elastic-run status." in refusal(command="statu")


def test_a_folder_is_a_script_only_with_a_main(folder: Path) -> None:
    (folder / "app").mkdir()
    assert refusal(command="app") == "app is a folder without a __main__.py: name the script in it"
    (folder / "app/__main__.py").touch()
    assert options(command="app").command.kind == "script"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("pkg/train.py", "write -m pkg.train,"),
        ("./train.py", "write -m train,"),
        ("train.py", "write -m train,"),
        (".train", "write -m train"),
        ("a..b", "full name"),
    ],
)
def test_a_module_is_not_a_path(name: str, advice: str) -> None:
    assert advice in refusal("-m", name)


def test_a_script_that_can_be_read_only_once_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert refusal(command="-") == f"a script on standard input (-) {ONLY_ONCE}"
    assert refusal(command="pipe") == f"the script pipe is a pipe, which {ONLY_ONCE}"


def test_a_module_is_taken_by_name() -> None:
    it = options("--module", "pkg.train --x")
    assert (it.command.kind, it.command.target, it.command.args) == ("module", "pkg.train", ("--x",))


def test_a_program_is_found_on_the_path_or_by_its_path(folder: Path) -> None:
    assert options("--no-python", "sh -c true").command.kind == "executable"
    assert "no program zzz on PATH" in refusal("--no-python", "zzz")
    assert "write ./train.py" in refusal("--no-python", "train.py")
    assert "chmod +x" in refusal("--no-python", "./train.py")
    (folder / "train.py").chmod(0o755)
    assert options("--no-python", "./train.py").command.target == "./train.py"
    assert "did you mean train.py?" in refusal("--no-python", "./trian.py")


def test_a_module_needs_python() -> None:
    assert "exclude each other" in refusal("-m --no-python", "train")


def test_run_path_takes_precedence() -> None:
    it = options("--run-path --no-python")
    assert it.command.kind == "run_path"
    assert it.notes == ("--no-python has no effect: --run-path takes precedence",)


def test_another_interpreter_may_be_named() -> None:
    assert options(PYTHON_EXEC="sh").command.python == "sh"
    assert refusal(PYTHON_EXEC="zzz").startswith("PYTHON_EXEC=zzz is not an executable program")


def test_a_launcher_whose_own_interpreter_is_gone_does_not_blame_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/gone/bin/python")
    assert refusal().startswith("the Python that runs elastic-run (/gone/bin/python) is not an executable program")
    monkeypatch.setattr(sys, "executable", "")
    assert refusal().startswith("the Python that runs elastic-run (its path is unknown) is not")


# -- output -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("0", (Std.NONE, Std.NONE)),
        ("1", (Std.OUT, Std.OUT)),
        ("2", (Std.ERR, Std.ERR)),
        ("0:1,1:2", (Std.OUT, Std.ERR)),
        ("1:3,7:3", (Std.NONE, Std.ALL)),
    ],
)
def test_streams_are_chosen_for_all_local_ranks_or_by_a_map(text: str, streams: tuple[Std, ...]) -> None:
    it = options(f"--nproc-per-node=2 --tee={text} --redirects={text}")
    assert it.output.tee == it.output.redirects == streams


@pytest.mark.parametrize("text", ["4", "-1", "x", "0:4", "0:1,", "0-1", "33"])
def test_other_streams_are_refused(text: str) -> None:
    assert "nor a map from local ranks" in refusal(f"--tee={text}")


def test_local_ranks_are_filtered() -> None:
    assert options("--local-ranks-filter='0, 2'").output.shown_ranks == frozenset({0, 2})
    assert options().output.shown_ranks is None
    assert "not a list of local ranks" in refusal("--local-ranks-filter=0,a")


def test_filters_split_at_single_commas_only() -> None:
    assert options("--duplicate-stdout-filters=loss,a,,b").output.stdout_filters == ("loss", "a,b")
    assert options("--duplicate-stderr-filters=Error").output.stderr_filters == ("Error",)


def test_colour_obeys_no_color_unless_it_is_asked_for() -> None:
    assert options().output.color == "auto"
    assert options(NO_COLOR="1").output.color == "never"
    assert options(NO_COLOR="").output.color == "auto"
    assert options("--color=always", NO_COLOR="1").output.color == "always"
    assert "did you mean always?" in refusal("--color=alway")


def test_folders_and_files_are_checked_and_nothing_is_left_behind(folder: Path) -> None:
    it = options("--log-dir=logs/new --summary-json=out/summary.json --store-dir=store --nnodes=2")
    assert (it.output.log_dir, it.output.summary_json) == (Path("logs/new"), Path("out/summary.json"))
    assert it.store.directory == Path("store")
    assert [file.name for file in folder.iterdir()] == ["train.py"]


@pytest.mark.parametrize("flag", ["--log-dir", "--store-dir"])
def test_a_folder_that_cannot_be_written_is_refused(flag: str) -> None:
    assert refusal(f"{flag}=train.py") == f"{flag}=train.py is a file: name a folder"
    assert f"{flag}=train.py/logs cannot be written" in refusal(f"{flag}=train.py/logs")
    assert f"{flag}=/proc/logs cannot be written: /proc" in refusal(f"{flag}=/proc/logs")


def test_a_summary_that_cannot_be_written_is_refused(folder: Path) -> None:
    assert "is a folder: name a file" in refusal(f"--summary-json={folder}")
    assert "cannot be written" in refusal("--summary-json=train.py/summary.json")


def test_a_dashboard_has_an_address_of_its_own_where_none_is_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastic_run.launcher.options.output.loopback_address", lambda: "127.0.0.1")
    assert options().output.dashboard is None
    assert options("--dashboard").output.dashboard == Endpoint("127.0.0.1", 0)
    assert options("--dashboard=[::1]:80").output.dashboard == Endpoint("::1", 80)
    assert options("--dashboard=0.0.0.0:80").output.dashboard == Endpoint("0.0.0.0", 80)
    assert options("--dashboard").given == ()
    assert "is not HOST:PORT" in refusal("--dashboard=8080")
    assert "is not HOST:PORT" in refusal("--dashboard=localhost:99999")
    assert "is not an address of this machine" in refusal("--dashboard=192.0.2.250:80")


def test_a_history_is_a_folder_that_other_nodes_keep_as_well(folder: Path) -> None:
    assert options("--history=events").output.history == Path("events")
    assert options("--history=events").given == ("--history=events",)
    assert "is a file: name a folder" in refusal("--history=train.py")


def test_the_launchers_own_lines_have_a_form(folder: Path) -> None:
    assert (options().output.log_format, options().output.log_timestamps, options().output.live_line) == (
        "text",
        False,
        True,
    )
    given = options("--log-format=json --log-timestamps --live-line=never").output
    assert (given.log_format, given.log_timestamps, given.live_line) == ("json", True, False)
    assert "is not one of text, json" in refusal("--log-format=xml")


def test_a_trace_is_a_file_that_workers_find_from_any_folder(folder: Path) -> None:
    assert options().output.trace is None
    assert options("--trace=out/trace.json").output.trace == folder / "out/trace.json"
    (folder / "trace.json").write_text("[\n")
    assert options("--trace=trace.json").output.trace == folder / "trace.json"  # it is gone on with
    assert options("--trace=trace.json").given == ()


def test_a_trace_that_cannot_be_written_is_refused(folder: Path) -> None:
    assert "is a folder: name a file" in refusal(f"--trace={folder}")
    assert "cannot be written" in refusal("--trace=train.py/trace.json")
    assert "cannot be written" in refusal("--trace=/proc/trace.json")


def test_what_is_no_trace_is_not_written_to(folder: Path) -> None:
    (folder / "notes.txt").write_text("dear diary")
    assert refusal("--trace=notes.txt") == "--trace=notes.txt is not a trace file: name another file"
    assert (folder / "notes.txt").read_text() == "dear diary"


# -- the user's own etcd ----------------------------------------------------------------------------------------


def test_https_or_a_certificate_means_tls_for_every_endpoint(folder: Path) -> None:
    (folder / "ca.pem").touch()
    for line in (
        "--rdzv-endpoint=https://h1,h2",
        "--rdzv-endpoint=h1,h2 --etcd-cacert=ca.pem",
        "--rdzv-endpoint=h1,h2 --rdzv-conf=protocol=https",
        "--rdzv-endpoint=h1,h2 --rdzv-conf=cacert=ca.pem",
    ):
        store = options(line).store
        assert store.credentials.tls, line
        assert store.endpoints == (Endpoint("h1", tls=True), Endpoint("h2", tls=True)), line
    assert not options("--rdzv-endpoint=h1").store.credentials.tls


def test_a_certificate_and_its_key_belong_together(folder: Path) -> None:
    (folder / "cert.pem").touch()
    (folder / "key.pem").touch()
    credentials = options("--rdzv-endpoint=h1 --etcd-cert=cert.pem --etcd-key=key.pem").store.credentials
    assert (credentials.cert, credentials.key) == (Path("cert.pem"), Path("key.pem"))
    assert "belong together" in refusal("--rdzv-endpoint=h1 --etcd-cert=cert.pem")
    assert "no readable file zzz.pem" in refusal("--rdzv-endpoint=h1 --etcd-cacert=zzz.pem")
    assert "contradicts" in refusal("--rdzv-endpoint=h1 --rdzv-conf=protocol=http --etcd-cacert=cert.pem")


def test_a_password_comes_from_the_environment_or_a_file(folder: Path) -> None:
    (folder / "secret").write_text("root:a:b\n")
    (folder / "secret").chmod(0o600)
    from_file = options("--rdzv-endpoint=https://h1 --etcd-user=@secret").store.credentials
    assert (from_file.user, from_file.password) == ("root", "a:b")
    it = options("--rdzv-endpoint=https://h1 --etcd-user=root", ELASTIC_RUN_ETCD_PASSWORD="hush")
    assert (it.store.credentials.user, it.store.credentials.password) == ("root", "hush")
    assert "hush" not in repr(it)
    assert "has no password" in refusal("--rdzv-endpoint=h1 --etcd-user=root")
    (folder / "secret").write_text("root\n")
    assert "one line, user:password" in refusal("--rdzv-endpoint=h1 --etcd-user=@secret")


def test_a_password_that_everybody_can_read_is_refused(folder: Path) -> None:
    (folder / "secret").write_text("root:hush\n")
    (folder / "secret").chmod(0o604)
    message = refusal("--rdzv-endpoint=https://h1 --etcd-user=@secret")
    assert "every user of this machine has access to secret (mode 0604): chmod 600 secret" in message
    assert "hush" not in message


def test_a_password_does_not_go_over_a_network_in_clear_unasked(folder: Path) -> None:
    message = refusal("--rdzv-endpoint=h1 --etcd-user=root", ELASTIC_RUN_ETCD_PASSWORD="hush")
    assert "without TLS the password of root goes over the network" in message and "hush" not in message
    here = options("--nnodes=2 --rdzv-endpoint=127.0.0.1 --etcd-user=root", ELASTIC_RUN_ETCD_PASSWORD="hush")
    assert here.store.credentials.password == "hush"


def test_a_password_on_the_command_line_is_refused_and_not_repeated() -> None:
    message = refusal("--rdzv-endpoint=h1 --etcd-user=root:hush")
    assert "ELASTIC_RUN_ETCD_PASSWORD" in message
    assert "hush" not in message


def test_credentials_need_an_etcd_to_go_to(folder: Path) -> None:
    (folder / "ca.pem").touch()
    assert "name yours with --rdzv-endpoint" in refusal("--nnodes=2 --etcd-cacert=ca.pem")
    assert options("--etcd-cacert=ca.pem").notes == (
        "the credentials for etcd have no effect: a job of one node keeps its store in the agent",
    )


# -- what does nothing here, and what is printed ----------------------------------------------------------------


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.status != "honoured"], ids=attrgetter("name"))
def test_a_flag_that_does_nothing_here_is_accepted_with_one_line(flag: Flag) -> None:
    typed = f"--{flag.name}={flag.choices[0] if flag.choices else 1}"
    [note] = options(typed).notes
    assert note.startswith(f"{typed} {'has no effect' if flag.status == 'no effect' else 'is not supported'}: ")


def test_a_start_method_that_does_not_exist_is_refused() -> None:
    assert "is not one of spawn, fork, forkserver" in refusal("--start-method=thread")


def test_the_join_command_repeats_what_holds_for_every_node() -> None:
    it = options(
        "--nnodes=2:8 --master-addr=h --node-rank=0 --local-addr=10.0.0.1 --node-name=a --monitor-interval=1 -m -t 3",
        "train '--name=two words'",
    )
    assert join_command(it, "10.0.0.1:2379") == (
        f"elastic-run --rdzv-endpoint=10.0.0.1:2379 --rdzv-id={it.job_id} --nnodes=2:8 --module --tee=3 "
        "train '--name=two words'"
    )


def test_who_runs_the_join_command_is_in_the_same_job() -> None:
    it = options("--nnodes=2:8 --nproc-per-node=2 --role=t", "train.py --lr 1")
    other = parse(shlex.split(join_command(it, "h1:2379"))[1:], {"USER": "eve", "PATH": "/bin"})
    assert (other.job_id, other.nodes, other.nproc, other.role) == (it.job_id, it.nodes, it.nproc, it.role)
    assert other.command.args == it.command.args


@pytest.mark.parametrize("line", ["--help", "-h", "--nnodes=2 --help zzz.py"])
def test_help_names_every_flag_and_stops(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        options(line, "")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert [flag.name for flag in FLAGS if f"--{flag.name}" not in text] == []
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        options("--version", "")
    assert (stop.value.code, capsys.readouterr().out) == (0, f"elastic-run {__version__}\n")


# -- the platform -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["5.4.0", "5.10.0-21-amd64", "6.1.0", "10.0", "unreadable"])
def test_linux_from_5_4_on_will_do(release: str) -> None:
    assert check_platform("Linux", release, (3, 11)) is None


@pytest.mark.parametrize(
    ("system", "release", "python", "words"),
    [
        ("Darwin", "23.1.0", (3, 12), "needs Linux, and this is Darwin"),
        ("Linux", "5.3.18", (3, 12), "needs Linux 5.4 or later"),
        ("Linux", "4.18.0-372.el8.x86_64", (3, 12), "needs Linux 5.4 or later"),
        ("Linux", "6.1.0", (3, 10), "needs Python 3.11 or later, and this is 3.10"),
    ],
)
def test_elsewhere_one_sentence_says_so(system: str, release: str, python: tuple[int, int], words: str) -> None:
    assert words in (check_platform(system, release, python) or "")


def test_a_suggestion_is_made_only_where_one_is_near() -> None:
    assert did_you_mean("settel", ["settle", "other"]) == ": did you mean settle?"
    assert did_you_mean("zzz", ["settle", "other"]) == "."


def test_torchruns_template_for_the_beginning_of_lines_is_taken_from_the_flag_or_from_either_variable() -> None:
    other = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
    assert options().output.line_prefix is None
    assert options("--log-line-prefix-template=${rank}:").output.line_prefix == "${rank}:"
    assert options(PET_LOG_LINE_PREFIX_TEMPLATE="a", **{other: "b"}).output.line_prefix == "a"
    assert options(**{other: "b"}).output.line_prefix == "b"


def test_output_without_a_prefix_is_that_of_one_worker() -> None:
    assert not options().output.raw
    assert options("--no-prefix").output.raw
    assert options("--no-prefix --nproc-per-node=4 --local-ranks-filter=2").output.raw
    assert "this node has 4: choose one of them with --local-ranks-filter=0" in refusal(
        "--no-prefix --nproc-per-node=4"
    )
    assert "exclude each other" in refusal("--no-prefix --log-line-prefix-template=${rank}:")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_completion_script_names_every_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options(f"--print-completion={shell}")
    assert ended.value.code == 0
    script = capsys.readouterr().out
    assert [flag.name for flag in FLAGS if flag.name not in script] == []


class TestALauncherThatIsAToolOfItsOwn:
    @staticmethod
    def interpreter(folder: Path, name: str = "python") -> Path:
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / name).symlink_to("/bin/sh")
        return folder / "bin" / name

    @pytest.fixture
    def tool(self, folder: Path) -> Path:
        (folder / "tool").mkdir()
        (folder / "tool" / "uv-receipt.toml").write_text("")
        self.interpreter(folder / "tool")
        return folder / "tool"

    def python(self, tool: Path, **environ: str) -> tuple[str, str]:
        return workers_python(environ, str(tool / "bin" / "python"), tool)

    @pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
    def test_gives_workers_the_active_environments_python(self, tool: Path, folder: Path, variable: str) -> None:
        wanted = self.interpreter(folder / "mine")
        self.interpreter(folder / "elsewhere")
        python, why = self.python(tool, **{variable: str(folder / "mine"), "PATH": str(folder / "elsewhere/bin")})
        assert python == str(wanted)
        assert f"workers run {wanted} ({variable}), because uv tool" in why

    def test_gives_workers_the_python_on_path(self, tool: Path, folder: Path) -> None:
        wanted = self.interpreter(folder / "mine", "python3")
        assert self.python(tool, PATH=str(folder / "mine/bin"))[0] == str(wanted)

    def test_keeps_its_own_where_there_is_no_other(self, tool: Path) -> None:
        own = str(tool / "bin" / "python")
        assert self.python(tool, PATH=str(tool / "bin"), VIRTUAL_ENV=str(tool)) == (own, "")

    def test_is_told_by_what_pipx_and_uv_leave_and_else_nothing_changes(self, tool: Path, folder: Path) -> None:
        self.interpreter(folder / "mine")
        active = {"VIRTUAL_ENV": str(folder / "mine")}
        (tool / "uv-receipt.toml").rename(tool / "pipx_metadata.json")
        assert "because pipx installed" in self.python(tool, **active)[1]
        (tool / "pipx_metadata.json").unlink()
        assert self.python(tool, **active) == (str(tool / "bin" / "python"), "")

    def test_still_obeys_python_exec_and_says_nothing_of_a_program_that_is_no_python(
        self, tool: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "prefix", str(tool))
        self.interpreter(folder / "mine")
        active = {"VIRTUAL_ENV": str(folder / "mine")}
        it = options(PYTHON_EXEC="sh", **active)
        assert (it.command.python, it.notes) == ("sh", ())
        it = options(**active)
        assert it.command.python == str(folder / "mine/bin/python") and len(it.notes) == 1
        assert options("--no-python", "sh", **active).notes == ()


class TestRoles:
    def test_are_read_in_their_order_with_all_that_is_so_of_them(self) -> None:
        it = options(
            "--roles=chief:1,ps:2,worker:2:8 --role-options=ps:nproc=2,on-loss=one --role-options=chief:counts=no "
            "--node-role=ps"
        )
        assert it.roles == (Role("chief", 1, 1, counts=False), Role("ps", 2, 2, 2, on_loss="one"), Role("worker", 2, 8))
        assert (it.nodes, it.node_role) == (Nodes(5, 11, 1), "ps")
        assert it.policy.roles == it.roles
        assert it.policy.largest_world(3) == 3 + 2 * 2 + 8 * 3

    @pytest.mark.parametrize(
        ("flags", "nprocs", "likely"),
        [
            ("--roles=a:2 --role-options=a:nproc=2", (2,), 2),
            ("--roles=a:1,b:4 --role-options=b:nproc=2", (1, 2), 2),
            ("--roles=a:1,b:4 --role-options=b:nproc=2 --node-role=a", (1,), 1),
            ("--nproc-per-node=3", (3,), 3),
        ],
    )
    def test_say_how_many_workers_this_node_may_have(self, flags: str, nprocs: tuple[int, ...], likely: int) -> None:
        it = options(flags)
        assert (it.nprocs, it.likely_nproc) == (nprocs, likely)

    def test_have_their_own_commands(self) -> None:
        it = options("--roles=a:1,b:1 --role-command='b:train.py --lr 1'")
        assert it.command_of(it.roles[1]).args == ("--lr", "1")
        assert it.command_of(it.roles[0]) == it.command

    def test_are_told_to_who_joins(self) -> None:
        it = options("--roles=a:1,b:1 --role-options=a:counts=no --role-options=b:nproc=2 --node-role=a")
        line = join_command(it, "host")
        assert "--role-options=a:counts=no --role-options=b:nproc=2" in line
        assert "--node-role" not in line

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            ("--roles=ps", "neither NAME:NODES nor NAME:MIN:MAX"),
            ("--roles=ps:1000000000000", "is more nodes than a role can have: at most 999999"),
            ("--roles=ps:1 --role-options=ps:nproc=100000", "is more workers than a node can have: at most 99999"),
            ("--roles=ps:2:1", "a minimum above its maximum: write ps:1:2"),
            ("--roles=ps:0", "allows no node"),
            ("--roles=ps:1 --role-options=ps", "no colon after the name of a role"),
            ("--roles=ps:1 --role-options=ps:nproc=1,nproc=2", "nproc stands there twice"),
            ("--roles=ps:1 --role-options=ps:nproc=1 --role-options=ps:counts=yes", "given twice for the role ps"),
            ("--roles=ps:1,ps:2", "ps stands there twice"),
            ("--roles=ps:0:1", "counts for success"),
            ("--roles=ps:1 --role-options=ps:counts=no", "counts for success"),
            ("--roles=ps:1 --nnodes=2", "contradicts --roles, whose sum is 1"),
            ("--roles=ps:1 --role=x", "contradicts --roles"),
            ("--roles=ps:1 --node-rank=0", "contradicts --roles"),
            ("--roles=ps:1 --node-role=pss", "did you mean"),
            ("--roles=ps:1 --role-options=worker:nproc=1", "begins with no role of --roles"),
            ("--roles=ps:1 --role-options=ps:on-loss=some", "is not one of nproc=NUMBER"),
            ("--roles=ps:2 --standalone", "this machine only"),
            ("--node-role=ps", "no role without --roles"),
        ],
    )
    def test_that_contradict_themselves_are_refused(self, flags: str, words: str) -> None:
        with pytest.raises(UsageError, match=re.escape(words)):
            options(flags)


def test_servers_have_a_least_and_a_most_number_and_replicas_where_there_are_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parsing, "check_packages", lambda *_: None)  # it looks for numba, which may not be here
    assert options("").servers is None and options("--servers=0").servers is None
    assert options("--servers=1").servers == ServerCount(1, 1, 0)
    assert options("--servers=2 --nnodes=1:4").servers == ServerCount(2, 2, 1)
    assert options("--servers=1:4 --standalone").servers == ServerCount(1, 4, 0)
    assert options("--servers=2:4 --ps-replicas=0").servers == ServerCount(2, 4, 0)
    assert options("--servers=1 --ps-checkpoint=/rows").servers == ServerCount(1, 1, 0, "/rows", 300.0)
    assert str(ServerCount(1, 1, 0, "/rows", 5.0)) == "1 replicas=0 checkpoint=/rows every=5"
    disk = ServerCount(1, 1, 0, memory=500 << 20, disk="/scratch:1", disk_size=3 << 40)
    assert options("--servers=1 --ps-memory=500MiB --ps-disk=/scratch:1:3T").servers == disk
    assert str(disk) == "1 replicas=0 memory=524288000 disk=/scratch:1:3298534883328"
    assert options("--servers=2 --ps-replicas=0 --ps-log=/log").servers == ServerCount(2, 2, 0, log="/log")
    assert str(ServerCount(1, 1, 0, log="/log")) == "1 replicas=0 log"
    assert str(ServerCount(2, 4, 1)) == "2:4 replicas=1" and str(ServerCount(1, 1, 0)) == "1 replicas=0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--servers=-1", "--servers=-1 is neither a number nor MIN:MAX: write --servers=2 or --servers=2:8"),
        ("--servers=two", "--servers=two is neither a number nor MIN:MAX"),
        ("--servers=4:2", "--servers=4:2: a job has from 1 to 128 servers, the fewest first: write --servers=2:8"),
        ("--servers=0:2", "--servers=0:2: a job has from 1 to 128 servers"),
        ("--servers=300", "--servers=300: a job has from 1 to 128 servers"),
        ("--servers=2 --ps-replicas=2", "--ps-replicas=2: what a server holds, one other server has, or none: 1 or 0"),
        ("--servers=1:3 --ps-replicas=1", "--ps-replicas=1: one server has no other: write --servers=2 or more"),
        ("--ps-replicas=1", "--ps-replicas=1 is for parameter servers: write --servers=2 as well"),
        ("--ps-checkpoint=rows", "--ps-checkpoint=rows is for parameter servers: write --servers=2 as well"),
        ("--ps-disk=/d:1G", "--ps-disk=/d:1G is for parameter servers: write --servers=2 as well"),
        ("--servers=1 --ps-memory=much", "--ps-memory=much is no size: write for example 500MiB or 8GiB"),
        ("--servers=1 --ps-memory=0", "--ps-memory=0 is no size"),
        ("--servers=1 --ps-disk=/d", "--ps-disk=/d does not say how much: write --ps-disk=DIR:SIZE"),
        ("--servers=1 --ps-disk=/d:", "--ps-disk=/d: is no size: write for example 500MiB or 8GiB"),
        ("--servers=1 --ps-disk=/dev/null:1G", "--ps-disk=/dev/null:1G: /dev/null is a file: name a folder"),
        ("--servers=1 --ps-checkpoint=", "--ps-checkpoint= is empty: write --ps-checkpoint=DIR"),
        ("--servers=1 --ps-checkpoint-every=5", "says when, and not where: write --ps-checkpoint=DIR as well"),
        ("--servers=1 --ps-checkpoint=/rows --ps-checkpoint-every=0", "write --ps-checkpoint-every=1 or more"),
        ("--ps-log=rows", "--ps-log=rows is for parameter servers: write --servers=2 as well"),
        ("--servers=1 --ps-log=", "--ps-log= is empty: write --ps-log=DIR"),
        ("--servers=2 --ps-log=/rows", "--ps-log=/rows is for rows that no other server has, and here each has a copy"),
        ("--servers=1 --ps-checkpoint=/rows --ps-checkpoint-every=often", "is not a number of seconds"),
    ],
)
def test_servers_that_cannot_be_are_refused_before_anything_starts(words: str, said: str) -> None:
    assert said in refusal(words)


def test_a_job_has_at_most_as_many_servers_as_are_planned_for() -> None:
    assert parsing.MOST_SERVERS == MOST_WANTED


def test_a_plan_of_a_package_may_be_installed_only_where_the_job_runs() -> None:
    words = ["--nnodes=1:4", "--plan=ours:hours=3", "--", "train.py"]
    assert parse(words, {}, workers=False, here=False).plan == "ours:hours=3"
    with pytest.raises(UsageError, match="no share of the work"):
        parse(["--nnodes=1:4", "--plan=goodput:cap=7", "--", "train.py"], {}, workers=False, here=False)
