"""What a PyTorch script that keeps its process may have done wrong; loads no torch."""

from ...rendezvous.base.errors import ElasticRunError


class UnsupportedState(ElasticRunError, TypeError, public=True):
    """A value that cannot travel; the text says which, and what to do."""


class ProcessGroupExists(ElasticRunError, public=True):
    """The script has made process groups itself, before it asked for a ring."""
