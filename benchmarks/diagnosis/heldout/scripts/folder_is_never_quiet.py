"""Before it reads the shared folder rank 0 waits until nothing in it changes, but its own heartbeat writes there."""

import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


def heartbeat(path: Path) -> None:
    while path.parent.exists():
        path.write_text(str(time.time()))
        time.sleep(0.7)


def wait_until_quiet(folder: Path, seconds: float) -> None:
    while True:
        newest = max(entry.stat().st_mtime for entry in folder.iterdir())
        if time.time() - newest > seconds:
            return
        time.sleep(0.3)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        threading.Thread(target=heartbeat, args=(folder / "alive",), daemon=True).start()
        for step in range(1000):
            dist.all_reduce(torch.rand(3))
            if step % 40 == 0:
                (folder / f"{step}.part").write_bytes(b"0" * 100)
            time.sleep(0.05)
            if step == 80 and rank == 0:
                wait_until_quiet(folder, 2)
                print("merged", len(list(folder.glob("*.part"))), flush=True)


main()
