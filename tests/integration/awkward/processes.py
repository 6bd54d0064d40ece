"""Starts processes by multiprocessing, in its three ways, and by executors. Its argument is the way."""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory
from multiprocessing.managers import SharedMemoryManager

VALUE = [1]


def work(number):
    return number * len(VALUE), __name__, multiprocessing.current_process().daemon


def speak(queue, lock, value, semaphore, pipe):
    with lock:
        value.value += 1
    semaphore.acquire()
    queue.put((multiprocessing.current_process().name, multiprocessing.parent_process().name, sys.argv, __name__))
    pipe.send((sys.path[0], os.getcwd(), len(VALUE), list(sys.flags), multiprocessing.get_start_method()))
    pipe.close()


def fail():
    print("a child fails", flush=True)
    raise SystemExit(5)


def main():
    method = sys.argv[1]
    VALUE.append(2)
    context = multiprocessing.get_context(method)
    print(
        "authkey is the parent's",
        multiprocessing.current_process().authkey == multiprocessing.process.current_process().authkey,
    )
    queue, lock, value = context.Queue(), context.Lock(), context.Value("i", 0)
    semaphore, (mine, theirs) = context.BoundedSemaphore(2), context.Pipe()
    children = [
        context.Process(target=speak, args=(queue, lock, value, semaphore, theirs), name=f"child {number}")
        for number in range(2)
    ]
    for child in children:
        child.start()
    print(sorted(queue.get() for _ in children))
    print([mine.recv() for _ in children])
    for child in children:
        child.join()
    print("exit codes", [child.exitcode for child in children], "counted", value.value)
    failing = context.Process(target=fail)
    failing.start()
    failing.join()
    print("failed with", failing.exitcode)
    with context.Pool(2) as pool:
        print(pool.map(work, range(4)))
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        print(list(executor.map(work, range(4))))
    with SharedMemoryManager() as manager:
        print(list(manager.ShareableList([1, "two", 3.0])))
    block = shared_memory.SharedMemory(create=True, size=16)
    block.buf[:4] = b"data"
    with context.Pool(1) as pool:
        print(pool.apply(attach, (block.name,)))
    block.close()
    block.unlink()
    print("left", multiprocessing.active_children())
    if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(3)


def attach(name):
    block = shared_memory.SharedMemory(name)
    data = bytes(block.buf[:4])
    block.close()
    return data


if __name__ == "__main__":
    main()
