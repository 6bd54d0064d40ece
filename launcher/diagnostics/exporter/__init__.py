"""`elastic-run exporter`: the status of running jobs as metrics for Prometheus, from a process of its own.

metrics.py    which metrics there are, and their values in a job's status (pure)
command.py    the command: asks the jobs when it is asked
"""
