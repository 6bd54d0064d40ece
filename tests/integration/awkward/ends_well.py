"""Ways to end with exit code 0, one for each rank, so that all are one job. An argument says which is the first."""

import atexit
import gc
import gzip
import io
import logging
import logging.handlers
import os
import shelve
import sys
import tempfile
import threading
import time
import weakref
import zipfile
from concurrent.futures import ThreadPoolExecutor

rank = int(os.environ["RANK"])


class Tells:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("the end of", self.name, file=sys.stderr)


class Fails:
    def __del__(self):
        raise ValueError("in __del__")


def in_a_thread(words):
    thread = threading.Thread(target=print, args=(words,))
    thread.start()
    thread.join()


def hooks():
    global told
    told = Tells("a global")
    told.itself = told
    atexit.register(print, "registered first, called last")
    atexit.register(lambda: 1 / 0)
    atexit.register(print, "registered last")
    weakref.finalize(told, print, "finalized")
    atexit.register(in_a_thread, "a thread at the end")


def threads():
    def late():
        threading.main_thread().join()
        print("later than the main thread", threading.main_thread().is_alive(), flush=True)

    threading.Thread(target=late, name="late").start()
    print("the main thread ends")


def daemons():
    def blocked(writing):
        while True:
            os.write(writing, b"x" * 4096)

    writing = os.pipe()[1]
    for target, args in ((blocked, (writing,)), (threading.Event().wait, ()), (os.read, (os.pipe()[0], 1))):
        threading.Thread(target=target, args=args, daemon=True).start()
    print("three daemons", len(threading.enumerate()))


def unclosed():
    global left
    left = [open("text.txt", "w"), open("binary", "wb", 1000), gzip.open("packed.gz", "wt"), open("update", "w+")]
    left[0].write("text, not closed\n")
    left[1].write(b"binary, not closed\n")
    left[2].write("packed, not closed\n")
    left[3].write("update\n")
    left.append(zipfile.ZipFile("folder.zip", "w"))
    left[-1].writestr(zipfile.ZipInfo("name"), "content")
    left.append(io.TextIOWrapper(io.BufferedWriter(io.FileIO("wrapped", "w"))))
    left[-1].write("wrapped")
    left.append(os.fdopen(os.open("by_number", os.O_WRONLY | os.O_CREAT), "w"))
    left[-1].write("by number")


def temporary():
    global kept
    kept = [tempfile.TemporaryDirectory(), tempfile.NamedTemporaryFile(), tempfile.TemporaryFile("w+")]
    with open(os.path.join(kept[0].name, "inside"), "w") as file:
        file.write("goes with its folder")
    kept.append(shelve.open("shelf"))
    kept[-1]["key"] = "value"
    print(len(os.listdir(tempfile.gettempdir())) > 0)


def logs():
    logging.basicConfig(filename="log.txt", format="%(levelname)s %(message)s %(processName)s %(threadName)s")
    memory = logging.handlers.MemoryHandler(100, target=logging.StreamHandler(sys.stdout))
    logging.getLogger().addHandler(memory)
    logging.warning("kept until the end")


def closed():
    print("before")
    sys.stdout.close()
    os.close(2)


def unflushed():
    atexit.register(print, "never printed")
    sys.stdout.write("no end of line")
    os._exit(0)


def exit_in_thread():
    thread = threading.Thread(target=sys.exit, args=(5,))
    thread.start()
    thread.join()
    sys.exit()


def thread_hook():
    threading.excepthook = lambda given: print("thread hook", given.exc_type, given.thread.name)
    sys.unraisablehook = lambda given: print("unraisable hook", given.exc_value, given.err_msg)
    thread = threading.Thread(target=lambda: 1 / 0, name="one that fails")
    thread.start()
    thread.join()
    Fails()
    gc.collect()


def default_hooks():
    thread = threading.Thread(target=lambda: 1 / 0, name="one that fails")
    thread.start()
    thread.join()
    Fails()


def executors():
    pool = ThreadPoolExecutor(2)
    pool.submit(lambda: (time.sleep(0.2), print("submitted work is done", flush=True)))
    print("not waited for")


def no_streams():
    print("before", flush=True)
    sys.stdout = sys.stderr = None
    print("nowhere")


def children():
    if os.fork() == 0:
        print("a child ends by itself", flush=True)
        atexit.register(print, "with its own hook", flush=True)
        sys.exit(3)
    print("it ended with", os.waitstatus_to_exitcode(os.wait()[1]))
    if os.fork() == 0:
        os._exit(4)  # a zombie stays


def tracing():
    calls = []

    def trace(frame, event, argument):
        if event == "call" and frame.f_code.co_filename == __file__:
            calls.append(frame.f_code.co_name)
        return trace

    sys.settrace(trace)
    threading.settrace(trace)
    sys.setprofile(lambda *_: None)
    inner()
    import colorsys

    sys.settrace(None)
    print(calls, colorsys.rgb_to_hsv(1, 0, 0))


def inner():
    return Tells("one that is called")


WAYS = [
    hooks, threads, daemons, unclosed, temporary, logs, closed, unflushed, exit_in_thread, thread_hook, default_hooks,
    executors, no_streams, children, tracing,
]  # fmt: skip

if __name__ == "__main__":
    if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(3)
    os.makedirs(f"rank{rank}")
    os.chdir(f"rank{rank}")
    WAYS[(rank + int(sys.argv[1] if sys.argv[1:] else 0)) % len(WAYS)]()
