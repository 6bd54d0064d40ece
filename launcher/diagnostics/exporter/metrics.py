"""Which metrics there are, and what a job's status says of each (pure).

One table: the documentation, the dashboard and the alert rules are held against it by tests.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

from ....master.machine.parameter_servers import ServerState, ServerStatus, TableMeasure
from ....master.status import Status
from ....rendezvous.base.frozen import dataclass

Sample = tuple[tuple[str, ...], float]
"""The values of a metric's own labels, and its value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a job; its first label is always `job`.

    Attributes:
        labels: beside `job`.
        read: its samples in a status.
    """

    name: str
    help: str
    read: Callable[[Status], Iterable[Sample]]
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["gauge", "counter"]:
        """By its name, as is the custom; a counter begins anew with each run of the job."""
        return "counter" if self.name.endswith("_total") else "gauge"


STATES = ("gathering", "open", "waiting", "succeeded", "failed", "repeated", "preempted", "timeout")


def _one(value: Callable[[Status], float | None]) -> Callable[[Status], Iterable[Sample]]:
    """A metric without labels of its own; absent where there is no value."""

    def read(status: Status) -> Iterable[Sample]:
        if (found := value(status)) is not None:
            yield (), found

    return read


def _nodes(status: Status) -> Iterable[Sample]:
    for state, number in sorted(Counter(node.state for node in status.nodes).items()):
        yield (state,), number


def _shards(status: Status) -> Iterable[Sample]:
    for each in status.datasets:
        waiting = each.shards - each.done - each.leased
        for state, number in (("done", each.done), ("leased", each.leased), ("waiting", waiting)):
            yield (each.name, state), number


def _suspects(status: Status) -> Iterable[Sample]:
    found = (each.finding for each in status.diagnosis)
    for kind, node, *numbers in dict.fromkeys((each.kind, each.node, each.rank, each.server) for each in found):
        yield (kind, node, *("" if each is None else str(each) for each in numbers)), 1.0


def _begun_servers(status: Status) -> list[ServerStatus]:
    """Those that have been started: of the others nothing is known."""
    return [each for each in status.parameter_servers.servers if each.report.incarnation]


def _of_servers(value: Callable[[ServerStatus], float | None]) -> Callable[[Status], Iterable[Sample]]:
    """A metric of each parameter server; absent where there is no value."""

    def read(status: Status) -> Iterable[Sample]:
        for each in _begun_servers(status):
            if (found := value(each)) is not None:
                yield (str(each.report.number), each.node), found

    return read


def _of_tables(value: Callable[[TableMeasure], float]) -> Callable[[Status], Iterable[Sample]]:
    """A metric of each table on each parameter server."""

    def read(status: Status) -> Iterable[Sample]:
        for each in _begun_servers(status):
            for table in each.report.measure.tables:
                yield (str(each.report.number), each.node, table.table), value(table)

    return read


def _slots(status: Status) -> Iterable[Sample]:
    for each in _begun_servers(status):
        report = each.report
        parts = (("primary", report.slots), ("backup", report.backups), ("bare", report.bare))
        for part, number in (*parts, ("copying", report.measure.copying)):
            yield (str(report.number), each.node, part), number


def _server_states(status: Status) -> Iterable[Sample]:
    for each in status.parameter_servers.servers:
        for state in get_args(ServerState):
            yield (str(each.report.number), each.node, state), float(state == each.report.state)


def _server_waits(status: Status) -> Iterable[Sample]:
    for each in status.parameter_servers.waits:
        for number in each.servers:
            yield (str(number), str(each.rank)), each.seconds


_SERVER = ("server", "node")
_TABLE = ("server", "node", "table")

METRICS: Sequence[Metric] = (
    Metric(
        "elastic_run_job_state",
        "1 for the state that the job is in, 0 for the others: gathering before the first round, open while it trains, "
        "waiting while it is suspended, or how it ended.",
        lambda status: [((state,), float(state == status.state)) for state in STATES],
        ("state",),
    ),
    Metric("elastic_run_round", "Number of the newest rendezvous round.", _one(lambda one: one.round)),
    Metric("elastic_run_round_age_seconds", "Seconds since it was published.", _one(lambda one: one.age)),
    Metric("elastic_run_world_size", "Workers in the round.", _one(lambda one: one.world_size)),
    Metric("elastic_run_nodes", "Nodes of the round, by what they report.", _nodes, ("state",)),
    Metric("elastic_run_standbys", "Registered nodes beyond the round.", _one(lambda one: len(one.standbys))),
    Metric(
        "elastic_run_target_nodes",
        "Nodes that the job wants, by role (empty without roles).",
        lambda status: [((target.role,), float(target.count)) for target in status.targets],
        ("role",),
    ),
    Metric(
        "elastic_run_worker_failures_total",
        "Failures of the script, which --max-restarts limits.",
        _one(lambda one: one.tally.failures),
    ),
    Metric(
        "elastic_run_optional_role_failures_total",
        "Failures of optional roles, which end no job.",
        _one(lambda one: one.tally.optional),
    ),
    Metric("elastic_run_max_restarts", "Failures that are allowed.", _one(lambda one: one.max_restarts)),
    Metric("elastic_run_lost_nodes_total", "Nodes that were lost.", _one(lambda one: one.tally.lost)),
    Metric("elastic_run_departures_total", "Departures in order.", _one(lambda one: one.tally.left)),
    Metric("elastic_run_arrivals_total", "Joins after the first round.", _one(lambda one: one.tally.joined)),
    Metric(
        "elastic_run_node_problems_total", "Rounds that a node could not start.", _one(lambda one: one.tally.problems)
    ),
    Metric(
        "elastic_run_trained_seconds_total",
        "Seconds in which all workers of a round ran.",
        _one(lambda one: one.goodput.trained),
    ),
    Metric(
        "elastic_run_elapsed_seconds_total", "Seconds since the first round.", _one(lambda one: one.goodput.elapsed)
    ),
    Metric(
        "elastic_run_goodput_ratio",
        "Trained of elapsed seconds, 0 to 1; what is known to be trained again does not count.",
        _one(lambda one: one.goodput.share),
    ),
    Metric(
        "elastic_run_time_seconds",
        "Elapsed seconds by category; they sum to the elapsed seconds. What was productive may turn out to be wasted.",
        lambda status: [((name,), seconds) for name, seconds in status.goodput.split.seconds.items()],
        ("category",),
    ),
    Metric(
        "elastic_run_steps_per_second",
        "Optimizer steps that rank 0 commits a second, over half a minute; absent where the script tells of none.",
        _one(lambda one: one.steps),
    ),
    Metric(
        "elastic_run_records_done",
        "Records of a dataset that are done, in all epochs.",
        lambda status: [((each.name,), float(each.records)) for each in status.datasets],
        ("dataset",),
    ),
    Metric(
        "elastic_run_shards",
        "Shards of a dataset in all epochs, by state: done, leased, waiting.",
        _shards,
        ("dataset", "state"),
    ),
    Metric(
        "elastic_run_stream_lag",
        "Offsets of a stream that are known and not done.",
        lambda one: [((each.name,), float(each.lag)) for each in one.datasets if each.lag is not None],
        ("dataset",),
    ),
    Metric(
        "elastic_run_stream_lost",
        "Offsets of a stream that were gone from its source before they were used.",
        lambda one: [((each.name,), float(each.lost)) for each in one.datasets if each.lag is not None],
        ("dataset",),
    ),
    Metric(
        "elastic_run_dataset_seconds_left",
        "Seconds until a dataset is done, at today's pace.",
        lambda one: [((each.name,), each.seconds_left) for each in one.datasets if each.seconds_left is not None],
        ("dataset",),
    ),
    Metric(
        "elastic_run_server_state",
        "1 for the state that a parameter server is in, 0 for the others: starting, answers, works (it has not "
        "answered its agent, and computes), silent (it does nothing), stopped.",
        _server_states,
        (*_SERVER, "state"),
    ),
    Metric(
        "elastic_run_server_slots",
        "Slots of a parameter server: primary, backup (it has their second copy), bare (primary without a second "
        "copy), copying (on their way to another server).",
        _slots,
        (*_SERVER, "part"),
    ),
    Metric(
        "elastic_run_server_resident_bytes",
        "Memory that a parameter server has.",
        _of_servers(lambda one: one.report.resident),
        _SERVER,
    ),
    Metric(
        "elastic_run_server_pulls_total",
        "Pulls of workers that a parameter server has answered.",
        _of_servers(lambda one: one.report.measure.pulls),
        _SERVER,
    ),
    Metric(
        "elastic_run_server_pull_seconds_total",
        "Seconds from the question to the answer of these pulls.",
        _of_servers(lambda one: one.report.measure.pull_seconds),
        _SERVER,
    ),
    Metric(
        "elastic_run_server_pushes_total",
        "Pushes of workers that a parameter server has answered, when its backups had them.",
        _of_servers(lambda one: one.report.measure.pushes),
        _SERVER,
    ),
    Metric(
        "elastic_run_server_push_seconds_total",
        "Seconds from the question to the answer of these pushes.",
        _of_servers(lambda one: one.report.measure.push_seconds),
        _SERVER,
    ),
    Metric(
        "elastic_run_server_saved_age_seconds",
        "Seconds since a parameter server has written its last part of a checkpoint; absent where it has written none.",
        _of_servers(lambda one: one.report.measure.saved_ago),
        _SERVER,
    ),
    Metric(
        "elastic_run_table_rows",
        "Rows of a table on a parameter server, second copies included.",
        _of_tables(lambda one: one.rows),
        _TABLE,
    ),
    Metric(
        "elastic_run_table_bytes",
        "Bytes of these rows, with what optimizers keep beside them.",
        _of_tables(lambda one: one.bytes),
        _TABLE,
    ),
    Metric(
        "elastic_run_table_disk_rows",
        "Of these rows, those that are on disk and not in memory.",
        _of_tables(lambda one: one.on_disk),
        _TABLE,
    ),
    Metric(
        "elastic_run_table_disk_reads_total",
        "Rows that a parameter server has read from its disk.",
        _of_tables(lambda one: one.read),
        _TABLE,
    ),
    Metric(
        "elastic_run_table_given_ids_total",
        "Ids of batches whose rows workers pulled, each as often as it came. Only the sum over all servers means "
        "something; divided by that of the pulled ids it is the merge rate.",
        _of_tables(lambda one: one.given),
        _TABLE,
    ),
    Metric(
        "elastic_run_table_pulled_ids_total",
        "Ids whose rows were pulled.",
        _of_tables(lambda one: one.pulled),
        _TABLE,
    ),
    Metric(
        "elastic_run_table_pushed_ids_total",
        "Ids whose gradients were pushed.",
        _of_tables(lambda one: one.pushed),
        _TABLE,
    ),
    Metric(
        "elastic_run_server_wait_seconds",
        "Seconds for which a rank has waited for a parameter server, from one second on.",
        _server_waits,
        ("server", "rank"),
    ),
    Metric(
        "elastic_run_suspect",
        "1 for each rank, parameter server or (both empty) whole node that is named for a job that stands still, is "
        "slow or is near a limit, by kind; kind standstill names nobody.",
        _suspects,
        ("kind", "node", "rank", "server"),
    ),
)

UP = Metric(
    "elastic_run_job_up",
    "1 where the job's master answers, 0 where the store has the job and nobody answers.",
    _one(lambda _: 1.0),
)
STORE_UP = "elastic_run_store_up"
STORE_UP_HELP = "1 where the store that --rdzv-endpoint names answers. It has no label."
