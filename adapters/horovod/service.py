"""Runs the rendezvous of one node (`node_rendezvous.py`) in the workers' Python, which needs not have elastic-run."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[3])
    from elastic_run.adapters.horovod.node_rendezvous import main

    main()
