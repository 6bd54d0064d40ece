"""Takes steps, each with some computation and a collective operation; at one step something happens to one rank.

    victim.py FAULT RANK STEP PORT JOURNAL [gloo]

PORT is that of a server of the trial which accepts and never answers. The time of the fault, on the machine's
monotonic clock, is appended to JOURNAL.
"""

import ctypes
import fcntl
import multiprocessing
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

FIRST = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
FAULT = sys.argv[1] if FIRST else "none"  # it happens once
CULPRIT, STEP, PORT, JOURNAL = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
RANK = int(os.environ["RANK"])
STEPS = STEP + (300 if FAULT.startswith(("slow_", "files_")) else 40)
STEP_SECONDS = 0.02


class Gloo:
    """The same operations by torch."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self.elements = 1
        dist.init_process_group("gloo")

    def all_reduce(self, value: float) -> float:
        """The sum of all ranks' values."""
        tensor = self._torch.tensor([value] * self.elements)
        self._dist.all_reduce(tensor)
        return float(tensor[0])

    def all_gather(self, value: float) -> list[float]:
        """All ranks' values."""
        found = [self._torch.zeros(1) for _ in range(self._dist.get_world_size())]
        self._dist.all_gather(found, self._torch.tensor([value]))
        return [float(each) for each in found]

    def barrier(self) -> None:
        """Returns when all ranks have come."""
        self._dist.barrier()


def compute(seconds: float = STEP_SECONDS) -> float:
    """Works for so long."""
    total, until = 0.0, time.monotonic() + seconds
    while time.monotonic() < until:
        total += sum(range(200))
    return total


def note() -> None:
    """The fault begins now."""
    with Path(JOURNAL).open("a") as file:
        file.write(f"{time.monotonic()}\n")
    print(f"rank {RANK}: step {STEP}", flush=True)


# -- faults ------------------------------------------------------------------------------------------------------------


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def lock_twice() -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


def lock_crossed() -> None:
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with second:
            both.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        both.wait()
        with second:
            pass


def join_a_thread() -> None:
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    thread.join()


def empty_queue() -> None:
    queue.Queue[int]().get()


def event_loop() -> None:
    import asyncio

    async def never() -> None:
        await asyncio.Event().wait()

    asyncio.run(never())


def sleep_for_ever() -> None:
    time.sleep(1e6)


def paused() -> None:
    signal.pause()


def retry_for_ever() -> None:
    while True:
        time.sleep(30.0)


def read_a_pipe() -> None:
    read, _ = os.pipe()
    os.read(read, 1)


def read_a_fifo() -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / "records"
        os.mkfifo(name)
        descriptor = os.open(name, os.O_RDWR)
        os.read(descriptor, 1)


def open_a_fifo() -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / "records"
        os.mkfifo(name)
        name.open("rb").read()


def file_lock() -> None:
    with tempfile.NamedTemporaryFile() as file:
        other = os.open(file.name, os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_EX)


def silent_server() -> None:
    with socket.create_connection(("127.0.0.1", PORT)) as server:
        server.sendall(b"GET / HTTP/1.0\r\n\r\n")
        server.recv(1)


def silent_server_polled() -> None:
    with socket.create_connection(("127.0.0.1", PORT), timeout=3600) as server:
        server.sendall(b"GET / HTTP/1.0\r\n\r\n")
        server.recv(1)


def silent_server_http() -> None:
    import urllib.request

    urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=3600).read()


def _serve(requests: "multiprocessing.Queue[int]", answers: "multiprocessing.Queue[int]", kill: bool) -> None:
    while True:
        requests.get()
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(1e6)


def _loader(kill: bool) -> None:
    context = multiprocessing.get_context("fork")
    requests: multiprocessing.Queue[int] = context.Queue()
    answers: multiprocessing.Queue[int] = context.Queue()
    context.Process(target=_serve, args=(requests, answers, kill), daemon=True).start()
    requests.put(1)
    answers.get()


def loader_died() -> None:
    _loader(True)


def loader_stuck() -> None:
    _loader(False)


def gil_in_a_sleep() -> None:
    ctypes.PyDLL(None).sleep(1000000)


def gil_in_a_read() -> None:
    read, _ = os.pipe()
    ctypes.PyDLL(None).read(read, ctypes.create_string_buffer(1), 1)


def busy() -> None:
    total = 0
    while True:
        total += 1


def busy_wait() -> None:
    done = threading.Event()
    while not done.is_set():
        pass


def wait_for_a_program() -> None:
    subprocess.run(["sleep", "1000000"], check=True)


def starved() -> None:
    os.sched_setaffinity(0, {0})
    pid = os.fork()
    if pid == 0:
        until = time.monotonic() + 12
        while time.monotonic() < until:
            pass
        os._exit(0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    compute(1e6)


# -- faults that end a worker ------------------------------------------------------------------------------------------


def full_disk() -> None:
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"0" * 4096)


def too_many_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    print(len(held))


def too_many_threads() -> None:
    threading.stack_size(512 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(100,), daemon=True).start()


def no_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20), size + (256 << 20)))
    print(len(bytearray(1 << 30)))


def abort_in_a_library() -> None:
    ctypes.CDLL(None).abort()


def crash_in_a_library() -> None:
    ctypes.string_at(0)


def memory_group() -> None:
    """In a control group of its own, whose folder the trial has made."""
    (Path(os.environ["VICTIM_GROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
    held = list[bytearray]()
    while True:
        held.append(bytearray(b"1" * (8 << 20)))


def loader_killed() -> None:
    import torch.utils.data

    class Records(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> int:
            if index == 32:
                note()
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    for _ in torch.utils.data.DataLoader(Records(), batch_size=4, num_workers=2):
        pass


# -- faults of the job's surroundings ----------------------------------------------------------------------------------


def lose_route(port: int) -> None:
    """In the network namespace of this run: what comes from this port is dropped."""
    rules = "add table ip victim; add chain ip victim in { type filter hook input priority 0; }; "
    rules += f"add rule ip victim in tcp sport {port} drop"
    subprocess.run(["nft", rules], check=True)


# -- faults to come ----------------------------------------------------------------------------------------------------


def files_leak() -> None:
    """Goes on, with almost as many open files as it may have."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    while len(list(Path("/proc/self/fd").iterdir())) < 252:
        os.open("/dev/null", os.O_RDONLY)


# -- faults that slow a rank down --------------------------------------------------------------------------------------


def slow_compute() -> None:
    compute(0.3)


def slow_data() -> None:
    """A record from a process that takes its time."""
    global records
    if records is None:
        records = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys, time\nwhile 1: time.sleep(0.3); sys.stdout.write('x'); sys.stdout.flush()",
            ],
            stdout=subprocess.PIPE,
        )
    assert records.stdout is not None
    os.read(records.stdout.fileno(), 1)


def slow_network() -> None:
    """An answer from a server of its own that takes its time."""
    global source
    if source is None:
        server = socket.create_server(("127.0.0.1", 0))

        def answer() -> None:
            peer, _ = server.accept()
            while peer.recv(1):
                time.sleep(0.3)
                peer.sendall(b"x")

        threading.Thread(target=answer, daemon=True).start()
        source = socket.create_connection(server.getsockname())
    source.sendall(b"?")
    source.recv(1)


records: subprocess.Popen[bytes] | None = None
source: socket.socket | None = None
SLOW: dict[str, Callable[[], None]] = {
    "slow_compute": slow_compute,
    "slow_data": slow_data,
    "slow_network": slow_network,
}


# -- innocent slowness -------------------------------------------------------------------------------------------------


def layer(depth: int) -> float:
    return compute(0.01) if depth == 0 else layer(depth - 1) + compute(0.002)


def metric(value: float) -> float:
    return value + compute(0.01)


def evaluation() -> None:
    until = time.monotonic() + 7
    while time.monotonic() < until:
        metric(layer(int(time.monotonic() * 50) % 4))


def checkpoint() -> None:
    until = time.monotonic() + 5
    with tempfile.NamedTemporaryFile() as file:
        while time.monotonic() < until:
            file.write(os.urandom(1 << 16))
            time.sleep(0.02)
        file.flush()
        os.fsync(file.fileno())


def compilation() -> None:
    code = "import time\nuntil = time.monotonic() + 6\nwhile time.monotonic() < until: sum(range(1000))"
    subprocess.run([sys.executable, "-c", code], check=True)


def download() -> None:
    """From a server of its own that sends little at a time."""
    server = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        peer, _ = server.accept()
        for _ in range(60):
            peer.sendall(b"0" * 1000)
            time.sleep(0.1)
        peer.close()

    threading.Thread(target=send, daemon=True).start()
    with socket.create_connection(server.getsockname()) as source:
        while source.recv(65536):
            pass


def progress_bar() -> None:
    for percent in range(60):
        time.sleep(0.1)
        print(f"{percent} %", flush=True)


def everyone_computes() -> None:
    """Not a fault of one rank: all have a long step."""
    compute(5)


def short_pauses() -> None:
    for _ in range(6):
        time.sleep(1.0)
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            sum(range(200))


def alarm() -> None:
    """An event that a handler of a signal sets."""
    rings = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: rings.set())
    signal.setitimer(signal.ITIMER_REAL, 6.0)
    rings.wait()


Operation = Callable[[], None]
FAULTS: dict[str, Operation] = {
    each.__name__: each
    for each in (
        stopped, lock_twice, lock_crossed, join_a_thread, empty_queue, event_loop, sleep_for_ever, paused,
        retry_for_ever, read_a_pipe, read_a_fifo, open_a_fifo, file_lock, silent_server, silent_server_polled,
        silent_server_http, loader_died, loader_stuck, gil_in_a_sleep, gil_in_a_read, busy, busy_wait,
        wait_for_a_program, starved, files_leak, full_disk, too_many_files, too_many_threads, no_memory,
        abort_in_a_library, crash_in_a_library, memory_group, loader_killed,
        evaluation, checkpoint, compilation, download, progress_bar,
        short_pauses, alarm,
    )
}  # fmt: skip


def train(group: object) -> None:
    """All steps."""
    from ring import Ring

    assert isinstance(group, Gloo | Ring)
    for step in range(STEPS):
        compute()
        here = step == STEP and RANK == CULPRIT
        if step == STEP and FAULT == "everyone_computes":
            note()
            everyone_computes()
        if here and FAULT != "loader_killed":  # which happens in a process of its own, after some time
            note()
        if step >= STEP and RANK == CULPRIT and FAULT in SLOW:
            SLOW[FAULT]()
        if here and FAULT in ("fewer_steps", "ends_early"):
            break
        if here and FAULT == "left_out":
            group.barrier()
        elif here and FAULT == "another_operation":
            group.all_gather(1.0)
        elif here and FAULT == "another_shape" and isinstance(group, Gloo):
            group.elements = 8
            group.all_reduce(1.0)
        elif here and FAULT == "lost_route" and isinstance(group, Ring):
            lose_route(group.port)
            group.all_reduce(1.0)
        elif here and FAULT == "another_clock":
            lock_twice()  # a sleep may fail on the node with that clock
        elif here and FAULT == "in_a_role":
            sleep_for_ever()
        elif here and FAULT in FAULTS:
            FAULTS[FAULT]()
            group.all_reduce(1.0)
        else:
            group.all_reduce(1.0)
    if FAULT != "ends_early":
        group.barrier()


def main() -> None:
    from ring import Ring

    if FAULT == "slow_start" and RANK == CULPRIT:
        note()
        compute(6)
    if os.environ.get("ROLE_NAME") == "rest":
        sleep_for_ever()
    group = Gloo() if sys.argv[6:] == ["gloo"] else Ring()
    train(group)


if __name__ == "__main__":
    main()
