"""What is wrong with the declaration of features, or with columns that they are to be made of."""

from ...rendezvous.base.errors import ElasticRunError


class BadFeatures(ElasticRunError, ValueError, public=True):
    """Features are declared as they cannot be, or the records lack a column that they are made of."""
