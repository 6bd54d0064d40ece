"""One server as a pure machine that holds everything, and is asked one thing at a time."""

from elastic_run.adapters.servers.requests import OpenTable, PushGradients, PushSource, Reply, WorkerRequest
from elastic_run.adapters.servers.server_events import AnswerAsker, Array, Arrays, ServerAsked, TableRead
from elastic_run.adapters.servers.server_machine import ServerMachine
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, SlotTable

COUNTS = TableSpec("counts", 1, SGD(1.0), Zeros())


class Tables:
    """A server that holds everything."""

    def __init__(self, memory: int) -> None:
        nobody = (NOBODY,) * SLOTS
        self._machine = ServerMachine("only", memory)
        self._machine.on(TableRead(SlotTable(1, (), (RunningServer(0, "only", "here"),), (0,) * SLOTS, nobody, nobody)))

    def answer(self, request: WorkerRequest, arrays: Arrays) -> tuple[Reply, Arrays]:
        (effect,) = self._machine.on(ServerAsked(1, request, arrays))
        assert isinstance(effect, AnswerAsker)
        return effect.reply, effect.arrays


def opened(*specs: TableSpec, memory: int = 1 << 24) -> Tables:
    tables = Tables(memory)
    for spec in specs or (COUNTS,):
        assert tables.answer(OpenTable(spec, 1), ())[0].refused == ""
    return tables


def push_gradients(tables: Tables, table: str, ids: Array, gradients: Array, begin: int) -> Reply:
    """Of one record."""
    request = PushGradients((table,), PushSource("d", 0, 1, begin, begin + 1), 1)
    return tables.answer(request, (ids, gradients))[0]
