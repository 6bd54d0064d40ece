"""Commands that look at a job, a machine or a recording, and start no worker.

status.py        `elastic-run status`; running_job.py asks the job's master, status_lines.py is what a person reads
exporter/        `elastic-run exporter`: the same as metrics
replay.py        `elastic-run replay`: a recorded master's decisions, made again
dry_run.py       `elastic-run --dry-run`: what a command would do here
explain.py       `elastic-run --explain-preload`: what would be imported ahead
"""
