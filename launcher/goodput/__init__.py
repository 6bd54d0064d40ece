"""What a job's time went into, for people.

marks.py   what a script says of its own time, out of the trace of its node
words.py   the categories as a line
"""
