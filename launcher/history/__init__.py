"""What a node keeps of its job's events (`--history=DIR`), for a report after the job has ended.

records.py   the events, as values and as lines of a file; how much of them is kept (pure)
journal.py   takes them as they happen, and writes them
"""
