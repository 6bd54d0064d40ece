"""Ends as its first argument says. Everything here ends with an error, so it is one worker's whole job."""

import atexit
import ctypes
import faulthandler
import os
import signal
import sys
import threading


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no words")


def deeper(depth):
    return deeper(depth - 1) if depth else 1 / depth


def uncaught():
    local = "not shown"
    deeper(3)
    print(local)


def chained():
    try:
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("it was not there") from error
    except ValueError:
        raise RuntimeError("while the other was handled")


def group():
    raise ExceptionGroup(
        "several", [ValueError("one"), ExceptionGroup("inner", [TypeError("two"), OSError(2, "three")])]
    )


def noted():
    error = ValueError("ä \udcff \x00 end")
    error.add_note("a note\nof two lines")
    raise error


def recursion():
    def again():
        again()

    again()


def unprintable():
    raise Unprintable


def exit_none():
    # Exit code 0, but not before these.
    threading.Thread(target=lambda: 1 / 0, name="one that fails").start()
    sys.exit(None)


def exit_int():
    sys.exit(3)


def exit_true():
    sys.exit(True)


def exit_large():
    sys.exit(2**40 + 5)


def exit_larger():
    sys.exit(2**80)


def exit_negative():
    raise SystemExit(-2)


def exit_text():
    print("before")
    sys.exit("the last words: ä")


def exit_object():
    sys.exit([1, {"a": 2}])


def exit_inside():
    try:
        sys.exit(4)
    finally:
        print("finally")


def exit_in_hook():
    atexit.register(sys.exit, 5)
    raise ValueError("before the hook")


def kill_int():
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()


def keyboard():
    raise KeyboardInterrupt("by hand")


def os_exit():
    atexit.register(print, "never printed")
    print("this is not flushed by hand")
    os._exit(6)


def abort():
    os.abort()


def segfault():
    ctypes.string_at(0)


def fault_told():
    faulthandler.enable()
    import json.decoder

    deeper_abort(2)


def deeper_abort(depth):
    if depth:
        deeper_abort(depth - 1)
    os.abort()


def fault_segfault():
    faulthandler.enable(all_threads=False)
    ctypes.string_at(0)


def user_signal():
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.pause()


def terminated():
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def broken_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.write(writing, b"nobody reads this")


def alarm():
    signal.alarm(1)
    signal.pause()


def hook_replaced():
    sys.excepthook = lambda kind, error, trace: print("the hook has", kind, error, trace.tb_lineno, file=sys.stderr)
    deeper(1)


def hook_fails():
    def hook(*_):
        raise TypeError("in the hook")

    sys.excepthook = hook
    deeper(1)


def closed_output():
    # What is printed later cannot be flushed at the end.
    sys.stdout = open(os.dup(1), "w")
    print("x" * 100)
    os.close(sys.stdout.fileno())


def replaced():
    os.execv("/bin/sh", ["sh", "-c", "echo another program; exit 7"])


def assertion():
    assert sys.argv == [], "arguments"
    os._exit(8)  # under -O


def in_thread():
    thread = threading.Thread(target=os._exit, args=(9,))
    thread.start()
    thread.join()


def in_import():
    with open("ends_early.py", "w") as file:
        file.write("import sys\nprint('module', __name__)\nsys.exit(10)\n")
    sys.path.insert(0, os.getcwd())
    import ends_early


def in_import_fails():
    os.makedirs("own/inner")
    with open("own/inner/__init__.py", "w") as file:
        file.write("from . import missing\n")
    sys.path.insert(0, os.getcwd())
    import own.inner


def misspelt():
    import sklaern.linear_model


def half_missing():
    import json
    from json import load_them


def memory():
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
    bytearray(2**33)


def core_limit():
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
    while True:
        pass


if __name__ == "__main__":
    print("begins", flush=True)
    globals()[sys.argv[1]]()
