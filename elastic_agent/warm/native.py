"""The few things that only the C library can do, called through ctypes."""

from __future__ import annotations

import ctypes
import gc
import os

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
SIGKILL = 9
_UNCHANGED = 0xFFFFFFFF

# Fields of /proc/self/stat, counted from the first after the name, in the order that the kernel's structure has them.
_CODE_AND_DATA = (23, 24, 42, 43, 44)
_STACK_AND_ARGUMENTS = (25, 45, 46)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends, and lets the parent's own programs read its stacks."""
    _libc.prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    _libc.prctl(_PR_SET_PTRACER, os.getppid(), 0, 0, 0)
    ctypes.set_errno(0)  # a kernel without Yama knows no such request, and a script could see that it was asked


def native_environment() -> list[bytes]:
    """The environment as native code sees it, sorted; `os.environ` may not know all of it."""
    block = ctypes.POINTER(ctypes.c_char_p).in_dll(_libc, "environ")
    found: list[bytes] = []
    number = 0
    while block and (entry := block[number]) is not None:
        found.append(entry)
        number += 1
    return sorted(found)


def is_instrumented() -> bool:
    """Whether libraries are preloaded: tools are, and may write what they have found in their destructors."""
    return bool(os.environ.get("LD_PRELOAD")) or os.path.exists("/etc/ld.so.preload")


def end_without_destructors() -> None:
    """From now on the process ends where C's `exit` would begin to run what was registered before this call.

    That is the destructors of the libraries that are loaded by now, which have nothing to write and take half a second
    for torch's in a forked process. What libraries register later still runs, then stdio's buffers are written, and
    the exit code stays the same. Python's own end comes before all of it, and is not touched.
    """
    try:
        on_exit, leave, flush = _libc.on_exit, _libc._exit, _libc.fcloseall
    except AttributeError:
        return  # a C library without them
    # The last to be registered is the first to run; each gets (exit code, argument).
    on_exit(ctypes.cast(leave, ctypes.c_void_p), None)
    on_exit(ctypes.cast(flush, ctypes.c_void_p), None)


def freeze_all_but(*things: object) -> None:
    """Has the garbage collector know nothing of what is there now, but for these."""
    for thing in things:
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(thing))
    gc.freeze()
    for thing in things:
        ctypes.pythonapi.PyObject_GC_Track(ctypes.py_object(thing))


def never_free(thing: object) -> None:
    """One reference that nobody gives back."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def show_environment(entries: list[bytes]) -> None:
    """Makes /proc/PID/environ show these entries, as it would after an exec.

    Tools find a rank's process there. A kernel without CONFIG_CHECKPOINT_RESTORE goes on showing those of the process
    that this one was forked from.
    """
    block = ctypes.create_string_buffer(b"\0".join([*entries, b""]))
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    _libc.sbrk.restype = ctypes.c_void_p
    begin = ctypes.addressof(block)
    addresses = [
        *(int(fields[number]) for number in _CODE_AND_DATA),
        _libc.sbrk(0),
        *(int(fields[number]) for number in _STACK_AND_ARGUMENTS),
        begin,
        begin + len(block) - 1,  # without the NUL that ctypes adds
        0,
    ]
    layout = (ctypes.c_uint64 * (len(addresses) + 1))(*addresses, _UNCHANGED << 32)
    if _libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(layout), ctypes.sizeof(layout), 0) == 0:
        never_free(block)
