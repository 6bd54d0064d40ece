"""`--node-check`: whether this node is fit for the job, before it takes part.

pairs.py        who is checked with whom, and who is to blame (pure)
versions.py     who has another torch, CUDA or NCCL than the others (pure)
machine.py      figures of this machine that are only measured for a check: CPU, disk, names
collective.py   one small collective between two nodes, in the workers' own Python
meeting.py      the nodes of a check find each other in the store
check.py        all of it in order, and what a person reads of it
"""
