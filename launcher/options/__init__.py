"""The command line of `elastic-run`, read into the values of `settings.py`; nothing is started here.

flags.py         the table of all flags, and how words are matched to it
config_file.py   `elastic-run.toml`, which completes them
parse.py         the whole: `parse` returns Options or raises UsageError
rendezvous.py    --rdzv-*, credentials, the secret: where the store is, and how it is reached
output.py        logs, prefixes, the summary and the trace
command.py       what the workers run
roles.py         --roles
reach.py         the flags of commands that only ask a running job
values.py        one flag's value as a number, seconds, a folder
slurm.py         the first host of an allocation
preflight.py     what can be wrong with this machine, a script or a folder before anything starts
"""
