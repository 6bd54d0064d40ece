"""The embedded etcd: a member of the store that this machine runs by itself."""

KEPT_VARIABLE = "ELASTIC_RUN_KEPT"
"""Marks a daemon of ours, and says which agent has started it: it becomes a child of that agent, and of no worker."""
