"""Simulated clusters on a virtual clock, in which the product's decisions are real.

    python -m benchmarks.cluster two_jobs            # ElasticDL's two jobs on 320 CPUs
    python -m benchmarks.cluster beside_a_service    # training beside an online service
    python -m benchmarks.cluster day                 # a day of 1,000 jobs
    python -m benchmarks.cluster --pictures docs/pictures

Real: each job's controller, its node manager with `reconcile` and `relaunch`, and what `elastic_agent/machine/plan.py`
decides for each node. Doubles: the `scheduler` with its machines, behind the `platform` that a node manager speaks to;
the store; and training, which is a rate (`job`, `node`). `times` says how long things take and from where that is
known; `bounds` what no schedule can do better; `usage` keeps who had how many CPUs, and `areas` draws it.
"""
