"""Figures that anyone can make again: elastic-run beside torchrun, on one machine, interleaved in one run.

    python -m benchmarks                      # all, for some ten minutes
    python -m benchmarks worker_kill -n 10    # one of them

`case` says what is run, `contest` takes turns, `launchers` knows how each one is called, `arena` starts and kills,
`journal` reads what the workers wrote, `table` makes figures of it, and `startup`, `worker_kill` and `node_kill` are
the cases themselves.
"""
