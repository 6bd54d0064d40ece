"""Who is to hold which slot is decided right: for losses, copies and moves one by one, and for any of them."""

from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.master.servers.placement import AT_A_TIME, ServersWanted, plan_slots
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, ServerPlace, SlotTable
from elastic_run.rendezvous.base.frozen import replace
from elastic_run.rendezvous.wire.values import decode, encode

from ....sampling import examples

MOST_STEPS = 100
"""Tables until nothing changes any more, if nobody comes or goes: 64 slots of 1024 move at a time."""


class ServersCluster:
    """Nodes and servers as they come and go, the table, and who really has the rows of each slot.

    Attributes:
        table: the newest.
        running: the servers by number, those of `away` nodes included.
        nodes: with what they do: "here", "leaving", or "away", of whom nothing is to be seen for a moment.
        rows: by slot, the incarnations that have all that was acknowledged.
    """

    def __init__(self, nodes: Iterable[str], least: int, most: int, replicas: int) -> None:
        self.wanted = ServersWanted(least, most, replicas)
        self.nodes = dict.fromkeys(nodes, "here")
        self.running: dict[int, RunningServer] = {}
        self.table = SlotTable()
        self.rows: list[set[str]] = [set() for _ in range(SLOTS)]
        self.lives = 0
        self.checkpoint = 0  # the last that is whole
        self.rows_from = 0  # the last round that was opened to go back

    @property
    def present(self) -> list[RunningServer]:
        return [each for each in self.running.values() if self.nodes.get(each.node) in ("here", "leaving")]

    def plan(self) -> int:
        """Plans until nothing changes; how many tables that took."""
        tables = 0
        while True:
            away = [each.incarnation for each in self.running.values() if self.nodes.get(each.node) == "away"]
            places = [node for node, does in self.nodes.items() if does != "leaving"]
            after = plan_slots(self.table, self.present, places, self.wanted, away, self.checkpoint, self.rows_from)
            if after is self.table:
                return tables
            tables += 1
            assert after.version == self.table.version + 1 and tables < MOST_STEPS
            assert decode(SlotTable, encode(after)) == after
            self.adopt(after)

    def adopt(self, after: SlotTable) -> None:
        """Checks the table, and has servers forget what they hold no more. Fails where a holder lacks rows."""
        before, self.table = self.table, after
        assert len({place.number for place in after.places}) == len(after.places)
        if after.lost:
            return
        lives = {each.incarnation for each in self.running.values()}
        for slot, (primary, backup, joining) in enumerate(zip(after.primary, after.backup, after.joining, strict=True)):
            named = [at for at in (primary, backup, joining) if at != NOBODY]
            assert len(set(named)) == len(named), f"slot {slot} has one server twice"
            holders = {after.servers[at].incarnation for at in (primary, backup) if at != NOBODY}
            if not before.primary:
                self.rows[slot] = holders
            assert holders & lives <= self.rows[slot], f"slot {slot}: {holders} beside {self.rows[slot]}"
            self.rows[slot] &= {after.servers[at].incarnation for at in named}

    def start(self, *numbers: int) -> None:
        """Agents start servers in their places, all or these, and end those whose places are no more."""
        wanted = {place.number: place.node for place in self.table.places}
        self.running = {at: each for at, each in self.running.items() if wanted.get(at) == each.node}
        for number, node in wanted.items():
            if number not in self.running and node in self.nodes and (not numbers or number in numbers):
                self.lives += 1
                self.running[number] = RunningServer(number, f"life {self.lives}", node, rows_from=self.table.rows_from)

    def copied(self, numbers: Iterable[int]) -> None:
        """These servers have given whole copies of all that others join for."""
        for number in numbers:
            if (server := self.running.get(number)) is None or server not in self.present:
                continue
            at = self.table.index_of(server.incarnation)
            for slot, primary in enumerate(self.table.primary):
                joining = self.table.joining[slot]
                if primary == at != NOBODY and joining != NOBODY:
                    self.rows[slot].add(self.table.servers[joining].incarnation)
            self.running[number] = replace(server, joined=self.table.version)

    def die(self, number: int) -> None:
        """The process ends; its agent starts another."""
        gone = self.running.pop(number)
        for each in self.rows:
            each.discard(gone.incarnation)
        self.start(number)

    def settle(self) -> int:
        """Goes on until nothing changes; the tables that it took."""
        tables, done = self.plan(), False
        while not done:
            self.start()
            self.copied(list(self.running))
            tables += (more := self.plan())
            done = not more
            assert tables < MOST_STEPS
        return tables

    def crash(self, node: str) -> None:
        """A machine is gone for good."""
        del self.nodes[node]
        for number in [number for number, each in self.running.items() if each.node == node]:
            gone = self.running.pop(number)
            for each in self.rows:
                each.discard(gone.incarnation)

    def held(self, what: str = "primary") -> Counter[int]:
        """Slots by a server's number."""
        found: tuple[int, ...] = getattr(self.table, what)
        return Counter(self.table.servers[at].number for at in found if at != NOBODY)


def settled(nodes: str, least: int, most: int, replicas: int) -> ServersCluster:
    cluster = ServersCluster(nodes, least, most, replicas)
    cluster.settle()
    return cluster


def spread(counts: Iterable[int]) -> int:
    return max(counts := list(counts)) - min(counts)


def test_each_node_has_a_place_up_to_the_most() -> None:
    assert settled("ABC", 1, 8, 0).table.places == tuple(ServerPlace(at, node) for at, node in enumerate("ABC"))
    assert {place.node for place in settled("ABC", 1, 2, 0).table.places} == {"A", "B"}


def test_fewer_nodes_than_servers_have_several_each() -> None:
    assert Counter(place.node for place in settled("AB", 5, 5, 0).table.places) == {"A": 3, "B": 2}


def test_places_of_nodes_that_have_not_come_yet_are_left_to_them() -> None:
    cluster = ServersCluster("A", 4, 4, 1)
    cluster.wanted = replace(cluster.wanted, nodes=2)
    cluster.plan()
    cluster.start()
    assert [place.node for place in cluster.table.places] == ["A", "A"]
    cluster.nodes["B"] = "here"
    cluster.settle()
    assert [place.node for place in cluster.table.places] == ["A", "A", "B", "B"]
    cluster.crash("B")
    cluster.settle()
    assert [place.node for place in cluster.table.places] == ["A"] * 4


def test_no_slot_has_a_server_before_the_least_run() -> None:
    cluster = ServersCluster("ABC", 2, 3, 1)
    cluster.plan()
    cluster.start(1)
    cluster.plan()
    assert not cluster.table.serves and len(cluster.table.places) == 3
    cluster.start(2)
    cluster.plan()
    assert cluster.table.serves and cluster.held() == {1: 512, 2: 512} == cluster.held("backup")


def test_slots_and_backups_are_spread_over_all_other_nodes() -> None:
    table = settled("ABCD", 8, 8, 1).table
    node = {at: each.node for at, each in enumerate(table.servers)}
    pairs = Counter(zip(table.primary, table.backup, strict=True))
    assert all(node[primary] != node[backup] for primary, backup in pairs)
    assert len(pairs) == 8 * 6 and spread(pairs.values()) <= 1


def test_a_server_that_is_lost_costs_no_slot_its_primary() -> None:
    cluster = settled("ABC", 3, 3, 1)
    before = cluster.table
    cluster.crash("B")
    cluster.plan()
    after = cluster.table
    gone = before.index_of("life 2")
    for slot in range(SLOTS):
        was, backup = before.servers[before.primary[slot]], before.servers[before.backup[slot]]
        now = after.servers[after.primary[slot]]
        assert now == (backup if before.primary[slot] == gone else was)
        missing = gone in (before.primary[slot], before.backup[slot])
        assert (after.backup[slot] == NOBODY) == missing == (after.joining[slot] != NOBODY)
    cluster.settle()
    assert NOBODY not in cluster.table.backup and not cluster.table.lost


def test_a_server_that_was_started_again_gets_as_much_as_the_others() -> None:
    cluster = settled("ABC", 3, 3, 1)
    cluster.die(1)
    cluster.settle()
    assert cluster.table.index_of("life 4") != NOBODY
    assert spread(cluster.held().values()) <= 1 and spread(cluster.held("backup").values()) <= 2


def test_a_copy_counts_only_where_its_source_says_so_of_this_very_table() -> None:
    cluster = settled("ABC", 3, 3, 1)
    cluster.crash("B")
    cluster.plan()
    stale = {at: replace(each, joined=cluster.table.version - 1) for at, each in cluster.running.items()}
    cluster.running = stale
    assert cluster.plan() == 0


def test_without_a_backup_the_loss_of_a_server_is_said_with_its_number_and_node() -> None:
    cluster = settled("ABC", 3, 3, 0)
    cluster.crash("B")
    cluster.plan()
    assert cluster.table.lost == ("parameter server 1 on node B has gone, and the only copy of its rows with it")
    assert cluster.table.serves and cluster.plan() == 0


def test_where_a_checkpoint_is_whole_the_loss_of_rows_is_a_table_without_slots_until_a_round_is_opened() -> None:
    cluster = settled("AB", 2, 2, 1)
    cluster.checkpoint = 7
    before = cluster.table
    cluster.die(0)
    cluster.crash("B")
    cluster.plan()
    lost = cluster.table
    assert lost.goes_back and not lost.serves and lost.restore == 7 and not lost.servers
    assert lost.places == before.places and "server 0 on node A has gone" in lost.lost
    assert cluster.plan() == 0
    cluster.rows_from = 4
    cluster.plan()
    assert not cluster.table.lost and cluster.table.rows_from == 4 and not cluster.table.serves


def test_who_ran_before_the_job_went_back_gets_no_slot_again() -> None:
    cluster = settled("ABC", 3, 3, 0)
    cluster.checkpoint = 7
    cluster.die(1)
    cluster.plan()
    cluster.rows_from = 2
    cluster.plan()
    assert len(cluster.running) == 3 and not cluster.table.serves
    for number in range(3):
        cluster.die(number)
    cluster.settle()
    assert cluster.table.serves and {each.incarnation for each in cluster.table.servers} == {
        each.incarnation for each in cluster.running.values()
    }
    assert {each.rows_from for each in cluster.table.servers} == {2}


def test_a_job_whose_rows_are_lost_again_goes_back_again_with_another_round() -> None:
    cluster = settled("A", 1, 1, 0)
    cluster.checkpoint = 7
    for round in (2, 5):
        cluster.die(0)
        cluster.plan()
        assert cluster.table.goes_back and cluster.table.rows_from < round
        cluster.rows_from = round
        cluster.plan()
        cluster.die(0)
        cluster.settle()
        assert cluster.table.serves and cluster.table.rows_from == round and not cluster.table.lost


def test_a_server_that_may_come_back_is_not_lost_yet() -> None:
    cluster = settled("ABC", 3, 3, 0)
    cluster.nodes["B"] = "away"
    assert cluster.plan() == 0
    cluster.nodes["B"] = "here"
    assert cluster.plan() == 0 and not cluster.table.lost


def test_another_process_in_its_place_proves_that_a_server_does_not_come_back() -> None:
    cluster = settled("A", 1, 1, 0)
    another = RunningServer(0, "another", "A")
    after = plan_slots(cluster.table, [another], ["A"], cluster.wanted, [cluster.running[0].incarnation])
    assert "parameter server 0 on node A" in after.lost


def test_all_servers_may_be_away_for_a_moment_and_come_back_one_by_one() -> None:
    cluster = settled("ABC", 3, 3, 1)
    cluster.nodes = dict.fromkeys("ABC", "away")
    assert cluster.plan() == 0
    for node in "CAB":
        cluster.nodes[node] = "here"
        cluster.plan()
    cluster.settle()
    assert not cluster.table.lost and spread(cluster.held().values()) <= 1


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_joining_server_that_dies_costs_nothing(replicas: int) -> None:
    cluster = settled("ABC", 3, 4, replicas)
    cluster.nodes["D"] = "here"
    cluster.plan()
    cluster.start()
    before = cluster.table
    cluster.plan()
    assert cluster.held("joining")
    cluster.crash("D")
    cluster.plan()
    after = cluster.table
    assert after.primary == before.primary and after.backup == before.backup and after.joining == before.joining


@pytest.mark.parametrize("replicas", [0, 1])
def test_who_comes_gets_its_share_a_few_slots_at_a_time(replicas: int) -> None:
    cluster = settled("ABC", 2, 8, replicas)
    before = cluster.table
    cluster.nodes["D"] = "here"
    cluster.plan()
    cluster.start()
    cluster.plan()
    moves = Counter(
        zip(cluster.table.primary, cluster.table.joining, strict=True),
    )
    assert all(count <= AT_A_TIME for (_, joining), count in moves.items() if joining != NOBODY)
    assert cluster.table.primary == before.primary and cluster.table.backup == before.backup
    cluster.settle()
    assert cluster.held() == dict.fromkeys(range(4), 256)


def test_balance_waits_for_copies_that_are_under_way() -> None:
    cluster = settled("ABC", 2, 8, 1)
    cluster.crash("C")
    cluster.plan()
    cluster.nodes["D"] = "here"
    cluster.plan()
    cluster.start()
    cluster.plan()
    before = cluster.table
    cluster.copied([0])
    cluster.plan()
    source = before.index_of("life 1")
    for slot in range(SLOTS):
        if before.primary[slot] != source:
            assert cluster.table.joining[slot] == before.joining[slot]


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_node_that_leaves_gives_its_slots_away_and_then_its_place(replicas: int) -> None:
    cluster = settled("ABC", 2, 3, replicas)
    cluster.nodes["B"] = "leaving"
    cluster.plan()
    assert any(place.node == "B" for place in cluster.table.places)
    cluster.settle()
    assert set(cluster.held()) == {0, 2} and {place.node for place in cluster.table.places} == {"A", "C"}
    assert "B" not in {each.node for each in cluster.table.servers}


@pytest.mark.parametrize("replicas", [0, 1])
def test_two_servers_of_one_node_part_when_another_node_comes(replicas: int) -> None:
    cluster = settled("A", 2, 2, replicas)
    cluster.nodes["B"] = "here"
    cluster.plan()
    cluster.copied([0, 1])
    before = cluster.table
    assert cluster.plan() == 0 and not cluster.held("joining")  # until the other node's server runs
    cluster.settle()
    assert [(place.number, place.node) for place in cluster.table.places] == [(0, "A"), (2, "B")]
    assert cluster.held() == {0: 512, 2: 512} and before.version < cluster.table.version
    assert cluster.held("backup") == (cluster.held() if replicas else {})


def test_servers_of_one_node_without_replicas_share_what_a_node_that_leaves_had() -> None:
    cluster = settled("AB", 4, 4, 0)
    cluster.nodes["B"] = "leaving"
    cluster.settle()
    assert set(cluster.held().values()) == {256} and {each.node for each in cluster.table.servers} == {"A"}


def test_backups_leave_the_node_of_their_primary_when_another_node_comes() -> None:
    cluster = settled("A", 3, 3, 1)
    cluster.nodes["B"] = "here"
    cluster.settle()
    node = [each.node for each in cluster.table.servers]
    assert node == ["A", "A", "B"]
    pairs = set(zip(cluster.table.primary, cluster.table.backup, strict=True))
    assert all(node[primary] != node[backup] for primary, backup in pairs)


def test_a_backup_that_may_come_back_keeps_what_its_lost_primary_had() -> None:
    cluster = settled("AB", 2, 2, 1)
    cluster.nodes["B"] = "away"
    cluster.crash("A")
    cluster.plan()
    assert not cluster.table.lost and cluster.held() == {0: 512, 1: 512}
    cluster.nodes["B"] = "here"
    cluster.settle()
    assert not cluster.table.lost and cluster.table.serves


def test_a_server_outside_of_the_places_is_nobody() -> None:
    cluster = settled("AB", 2, 2, 1)
    strangers = [RunningServer(7, "a", "A"), RunningServer(8, "b", "Z")]
    running = [*cluster.present, *strangers]
    assert plan_slots(cluster.table, running, "AB", cluster.wanted) is cluster.table


def test_no_nodes_at_all_change_no_place() -> None:
    cluster = settled("AB", 2, 2, 1)
    assert plan_slots(cluster.table, cluster.present, (), cluster.wanted) is cluster.table


def test_an_address_that_changes_is_in_the_next_table() -> None:
    cluster = settled("AB", 2, 2, 1)
    cluster.running[1] = replace(cluster.running[1], remote="b:7")
    assert cluster.plan() == 1 and cluster.table.servers[1].remote == "b:7"


# -- anything that may happen -------------------------------------------------------------------------------------


def comes(cluster: ServersCluster, node: str, _: int) -> None:
    cluster.nodes[node] = "here"


def crashes(cluster: ServersCluster, node: str, _: int) -> None:
    if node in cluster.nodes:
        cluster.crash(node)


def leaves(cluster: ServersCluster, node: str, _: int) -> None:
    if cluster.nodes.get(node) == "here":
        cluster.nodes[node] = "leaving"


def is_away(cluster: ServersCluster, node: str, _: int) -> None:
    if cluster.nodes.get(node) == "here":
        cluster.nodes[node] = "away"


def dies(cluster: ServersCluster, _: str, number: int) -> None:
    if cluster.running:
        cluster.die(sorted(cluster.running)[number % len(cluster.running)])


def starts(cluster: ServersCluster, _: str, number: int) -> None:
    cluster.start(number)


def gives_copies(cluster: ServersCluster, _: str, number: int) -> None:
    cluster.copied([number, number + 1])


Happens = Callable[[ServersCluster, str, int], None]
HAPPENS: tuple[Happens, ...] = (comes, crashes, leaves, is_away, dies, starts, gives_copies, gives_copies)


@settings(max_examples=examples(100, 8), deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 1)),
    st.lists(st.tuples(st.sampled_from(HAPPENS), st.sampled_from("ABCDE"), st.integers(0, 6)), max_size=12),
)
def test_whatever_happens_a_holder_has_the_rows_and_all_ends_in_balance(
    wanted: tuple[int, int, int], story: list[tuple[Happens, str, int]]
) -> None:
    least, more, replicas = wanted
    cluster = settled("ABC", least, least + more, replicas)
    for happens, node, number in story:
        happens(cluster, node, number)
        cluster.plan()
        if cluster.table.lost:
            lives = {each.incarnation for each in cluster.running.values()}
            ended = {at for at, each in enumerate(cluster.table.servers) if each.incarnation not in lives} | {NOBODY}
            pairs = zip(cluster.table.primary, cluster.table.backup, strict=True)
            assert any(set(pair) <= ended for pair in pairs)
            return
    cluster.nodes = dict.fromkeys(cluster.nodes, "here") or {"A": "here"}
    cluster.settle()
    if cluster.table.lost:
        return
    table = cluster.table
    count = min(least + more, max(least, len(cluster.nodes)))
    assert len(table.places) == len(table.servers) == count
    assert spread(Counter(place.node for place in table.places).values()) <= 1
    assert not set(table.joining) - {NOBODY}
    assert spread(cluster.held().values()) <= 4 and len(cluster.held()) == count
    if replicas and count > 1:
        node = [each.node for each in table.servers]
        assert NOBODY not in table.backup
        pairs = set(zip(table.primary, table.backup, strict=True))
        assert len(set(node)) == 1 or all(node[primary] != node[backup] for primary, backup in pairs)
