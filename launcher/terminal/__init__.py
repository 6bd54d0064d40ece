"""What a person sees on a terminal while the job runs.

live_line.py   one line at the bottom that tells how the job is (pure), and the task that keeps it so
watched.py     a job that `elastic-run status --watch` shows, and the log or stacks of a rank
keys.py        what a key does there (pure)
rank_lines.py  what an agent sees of a rank, as lines (pure)
"""
