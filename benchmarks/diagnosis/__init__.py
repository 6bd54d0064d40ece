"""Injected faults on real processes, and whether the diagnosis names the right rank and cause.

    python -m benchmarks.diagnosis -n 200 --seed 1        # a confusion matrix of 200 runs
    python -m benchmarks.diagnosis --kinds deadlock,sleeps -n 10

`corpus` draws faults from a seed, `trial` runs one of them under a real `elastic-run`, `score` makes the matrix. The
scripts train nothing: they take steps and meet in collective operations, by sockets (`scripts/ring.py`) or by gloo.
One in four runs is innocent: a long evaluation, a checkpoint, a compilation, a slow first step.
"""
