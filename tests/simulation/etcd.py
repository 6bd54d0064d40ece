"""An etcd cluster on a virtual clock, simulated at the wire: the real `EtcdStore` runs on it.

`etcd_engine.py` is what all members agree on, `etcd_cluster.py` the members and what happens to them, `etcd_client.py`
the connections of one node.
"""

from .etcd_client import Client
from .etcd_cluster import LEASE_CHECK, Cluster, Network, World

__all__ = ["LEASE_CHECK", "Client", "Cluster", "Network", "World"]
