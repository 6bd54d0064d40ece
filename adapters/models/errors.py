"""What is wrong with a model file, or with what it was asked to do."""

from ...rendezvous.base.errors import ElasticRunError


class BadModel(ElasticRunError, ValueError, public=True):
    """A model file lacks a function or cannot be loaded, or one of its functions returns what cannot be used."""
