"""What a job goes on from when all its workers were lost, and what nodes must agree on before a commit returns."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from elastic_run.adapters.client.memory_choice import (
    HeldGeneration,
    RankRow,
    SavedFile,
    mark_run,
    newest_file,
    order_candidates,
    row_of,
)
from elastic_run.adapters.client.memory_state import (
    clear_generation,
    complete_generation,
    read_generation,
    write_text,
)

NOTHING = HeldGeneration()
NO_FILE = SavedFile()
RUN, OTHER = mark_run("a"), mark_run("b")


def held(round: int, step: int, mark: int = 0, run: int = RUN) -> HeldGeneration:
    return HeldGeneration(step, round, run, mark, 100)


def steps(*rows: RankRow) -> list[tuple[int, int]]:
    return [(each.round, each.step) for each in order_candidates(rows)]


def test_the_newest_step_that_any_node_holds_comes_first_and_then_the_older_ones() -> None:
    rows = (
        RankRow(NO_FILE, held(1, 4), held(1, 3)),
        RankRow(NO_FILE, held(1, 4), held(1, 5)),
        RankRow(NO_FILE, NOTHING, NOTHING),
    )
    assert steps(*rows) == [(1, 5), (1, 4), (1, 3)]


def test_a_later_round_comes_before_a_higher_step_of_a_node_that_was_cut_off() -> None:
    assert steps(RankRow(NO_FILE, held(1, 20), held(1, 19)), RankRow(NO_FILE, held(2, 15), NOTHING)) == [
        (2, 15),
        (1, 20),
        (1, 19),
    ]


def test_what_is_older_than_the_file_is_not_tried() -> None:
    file = SavedFile(10, 2, RUN)
    assert steps(RankRow(file, held(2, 11), held(2, 10))) == [(2, 11)], "of the same step the file is taken"
    assert steps(RankRow(file, held(1, 12), held(3, 8))) == [(3, 8)], "rounds of one run come before steps"
    assert steps(RankRow(SavedFile(10), held(1, 10), held(1, 11))) == [(1, 11)], "a file that does not say its run"


def test_rounds_of_another_run_are_no_measure_of_a_file() -> None:
    file = SavedFile(500, 7, OTHER)
    assert steps(RankRow(file, held(1, 501), held(1, 500))) == [(1, 501)]


def test_this_run_comes_before_an_earlier_one_whose_rounds_went_further() -> None:
    rows = RankRow(NO_FILE, held(7, 900, run=OTHER), held(1, 20), RUN), RankRow(NO_FILE, held(1, 19), NOTHING)
    assert steps(*rows) == [(1, 20), (1, 19), (7, 900)]
    file = SavedFile(10, 1, RUN)
    assert steps(RankRow(file, held(7, 900, run=OTHER), NOTHING, RUN)) == [], "the file is of this run"


def test_the_file_that_any_rank_finds_counts() -> None:
    rows = RankRow(NO_FILE, held(1, 4), NOTHING), RankRow(SavedFile(9), NOTHING, NOTHING)
    assert newest_file(rows) == SavedFile(9)
    assert steps(*rows) == []


def test_one_step_in_two_states_is_two_candidates_and_the_lowest_ranks_comes_first() -> None:
    rows = RankRow(NO_FILE, held(1, 4, mark=7), NOTHING), RankRow(NO_FILE, held(1, 4, mark=5), NOTHING)
    assert [each.mark for each in order_candidates(rows)] == [7, 5]


def test_ranks_tell_it_as_numbers() -> None:
    row = RankRow(SavedFile(3, 1, RUN), held(2, 4, mark=9), NOTHING, OTHER)
    assert row_of(row.numbers) == row
    assert row.generations == [held(2, 4, mark=9)]


class Node:
    """One node's two memories, of which it always writes the older."""

    def __init__(self) -> None:
        self.memories = bytearray(256), bytearray(256)
        self.newest = 0
        self.step = self.returned = 0

    def row(self) -> RankRow:
        found = [read_generation(each) for each in self.memories]
        return RankRow(NO_FILE, *(held(each.round, each.step, each.mark) if each else NOTHING for each in found))


def run_until_killed(moves: list[int], *, agrees: bool) -> list[Node]:
    """Two nodes, of which the one that `moves` names does its next thing: three for each commit.

    With `agrees`, as `Checkpoint.commit` does, no commit returns before both have written it.
    """
    nodes = [Node(), Node()]
    done = [0, 0]
    for index in moves:
        node = nodes[index]
        memory = node.memories[1 - node.newest]
        match done[index] % 3:
            case 0:
                node.step += 1
                clear_generation(memory)
            case 1:
                complete_generation(memory, 1, node.step, write_text("a", {}), 64, zlib.crc32)
                node.newest = 1 - node.newest
            case _:
                if agrees and not all(_has(each, node.step) for each in nodes):
                    continue  # it waits for the other
                node.returned = node.step
        done[index] += 1
    return nodes


def _has(node: Node, step: int) -> bool:
    return any(each.step >= step for each in node.row().generations)


def loses_a_step(nodes: list[Node]) -> bool:
    """Whether one of the nodes alone, the other's machine being gone, has less than a commit that has returned."""
    committed = max(node.returned for node in nodes)
    return any(max((step for _, step in steps(node.row())), default=0) < committed for node in nodes)


MOVES = st.lists(st.integers(0, 1), max_size=40)


@given(MOVES)
def test_what_commit_has_returned_for_is_in_every_node_whenever_all_are_killed(moves: list[int]) -> None:
    assert not loses_a_step(run_until_killed(moves, agrees=True))


def test_without_agreeing_two_ranks_a_step_apart_lose_one() -> None:
    one_ahead = [0, 0, 0]  # it has returned from its first commit, and the other has not begun
    assert loses_a_step(run_until_killed(one_ahead, agrees=False))
    assert not loses_a_step(run_until_killed(one_ahead, agrees=True))
