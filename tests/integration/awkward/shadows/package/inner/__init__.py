"""Asks its parent, which is not yet complete."""

from .. import __name__ as parent

names = [parent, __name__, __package__]
