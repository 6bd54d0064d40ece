"""By which network interface a node's peers reach it: gloo wants its name."""

import ipaddress
import socket
from collections.abc import Sequence

import psutil

from ...rendezvous.store.endpoint import DEFAULT_PORT, find_source_address, is_loopback, resolve


def interface_to(host: str, others: Sequence[str]) -> str:
    """The name of an interface; empty where it is not known.

    Args:
        host: what the peers call this node.
        others: the peers' hosts.
    """
    own = next(iter(resolve(host)), "")
    if own and not is_loopback(own):
        return _with_address(own)
    for other in others:  # a name that means loopback here may mean something else there
        there = next(iter(resolve(other)), "")
        if there and not is_loopback(there) and (here := find_source_address(there, DEFAULT_PORT)):
            return _with_address(here)
    return _with_address(own) if own else ""


def _with_address(address: str) -> str:
    wanted = ipaddress.ip_address(address)
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family in (socket.AF_INET, socket.AF_INET6):
                found = ipaddress.ip_address(each.address.partition("%")[0])
                if found == wanted or (found.is_loopback and wanted.is_loopback):
                    return name
    return ""
