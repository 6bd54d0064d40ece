"""Figures that anyone can make again: elastic-run beside its peers, on one machine, interleaved in one run.

    python -m benchmarks                      # all, for some forty minutes
    python -m benchmarks worker_kill -n 10    # one of them

`case` says what is run, `contest` takes turns, `launchers` knows how each one is called, `arena` starts and kills,
`journal` reads what the workers wrote, `table` makes figures of it and `pictures` draws them. The cases themselves are
`startup`, `worker_kill`, `node_kill`, `silent_node`, `membership` and `in_place`, which have `nodes` that train
together, and `steady`, `memory`, `exit` and `goodput`; `recovery` draws one with what its trace tells. For the data
there are `leases`, `ledger_size`, `slow_worker`, `records` and `lockstep_step`, whose scripts write `answers`;
`dlrover` installs the peer of most of them. `horovod` and `tensorflow` are of those frameworks; they are left out
where these are not installed. `rendezvous_scale` has many agents in few processes, and no workers.
"""
