"""The embedded etcd: a member of the store that this machine runs by itself."""
