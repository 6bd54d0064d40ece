"""What a worker of `launch` runs: `python -m elastic_run.launcher.call MODULE:NAME DIGEST`.

The function, its arguments and its result travel as names and JSON in a file that `launch` wrote; nothing is pickled,
and nothing but the standard library is loaded here.
"""

import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

CALL_FILE = "ELASTIC_RUN_CALL_FILE"
"""Names the file with the call: `{"path": [...], "args": [...], "kwargs": {...}}`."""


def find(target: str) -> Any:  # Any: whatever the user's module holds under that name
    """The object that `module:qualified.name` or `file.py:qualified.name` names."""
    module, _, name = target.rpartition(":")
    if module.endswith(".py"):
        # As multiprocessing does with a spawned child: the main file is loaded under another name, so that what
        # stands under `if __name__ == "__main__"` does not run again.
        found: Any = runpy.run_path(module, run_name="__mp_main__")
        first, *rest = name.split(".")
        found = found[first]
    else:
        found = importlib.import_module(module)
        rest = name.split(".")
    for part in rest:
        found = getattr(found, part)
    return found


def main() -> None:
    """Calls the function and leaves its result beside the call's file, as `result-<rank>.json`."""
    file = Path(os.environ[CALL_FILE])
    call = json.loads(file.read_text(encoding="utf-8"))
    sys.path[:] = call["path"]
    result = find(sys.argv[1])(*call["args"], **call["kwargs"])
    try:
        text = json.dumps(result)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{sys.argv[1]} returned {type(result).__name__}, which cannot be encoded as JSON ({error}): return "
            "numbers, text, lists and dictionaries, and save anything else to a file"
        ) from None
    target = file.with_name(f"result-{os.environ['RANK']}.json")
    part = target.with_suffix(f".{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.rename(target)


if __name__ == "__main__":
    main()
