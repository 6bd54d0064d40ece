"""Found by Python's start-up where this folder is on PYTHONPATH: the door to `bootstrap.py`."""

import os
import sys

if "ELASTIC_RUN_WARM" not in os.environ:
    raise ImportError("this is no warm interpreter", name="sitecustomize")
try:
    sys.modules.pop("sitecustomize", None)  # a user's own module of this name comes later
    _here = os.path.dirname(__file__)
    _before, _folders = set(sys.modules), set(sys.path_importer_cache) - {_here}
    # Under a name of its own: the interpreter may have no elastic_run, or another one.
    _spec = sys.modules["_frozen_importlib_external"].spec_from_file_location(
        "_elastic_run_warm", _here + "/__init__.py", submodule_search_locations=[_here]
    )
    sys.modules["_elastic_run_warm"] = sys.modules["_frozen_importlib"].module_from_spec(_spec)
    from _elastic_run_warm import bootstrap  # pyright: ignore

    # Returns in a worker only.
    bootstrap.run(_here, _before, _folders)  # pyright: ignore
except KeyboardInterrupt:
    # As it ends a script that does not take it. This module is built in, and loaded by every start-up.
    sys.modules["_signal"].signal(2, 0)
    os.kill(os.getpid(), 2)
except BaseException:  # noqa: BLE001 - it ends here
    os._exit(70)  # or Python would go on, and run the script here
if "sitecustomize" not in sys.modules:
    # What Python's start-up takes for "there is none", without a word.
    raise ImportError("there is none", name="sitecustomize")
