"""`python -m elastic_run` is the command `elastic-run`."""

from .launcher.cli import run

if __name__ == "__main__":
    run()
