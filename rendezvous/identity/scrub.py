"""Overwrites a secret where other processes can read it: in this process's argument and environment blocks.

The kernel shows a process's arguments to every user of the machine, and its first environment to the same user, from
the very memory that they were passed in. So what is overwritten there is gone from `ps` and from /proc.
"""

from pathlib import Path


def scrub(secret: str) -> None:
    """Overwrites every occurrence of `secret`; does nothing where the kernel does not say where the blocks are."""
    wanted = secret.encode()
    if not wanted:
        return
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        # Counted from the third field, the state: see proc(5).
        blocks = [(int(fields[45]), int(fields[46])), (int(fields[47]), int(fields[48]))]
    except (OSError, ValueError, IndexError):
        return
    import ctypes  # here, because it is needed only where there is something to overwrite

    for begin, end in blocks:
        if not begin or end <= begin:
            continue
        block = ctypes.string_at(begin, end - begin)
        at = block.find(wanted)
        while at >= 0:
            ctypes.memset(begin + at, ord("x"), len(wanted))
            at = block.find(wanted, at + len(wanted))
