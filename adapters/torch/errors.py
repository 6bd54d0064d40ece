"""What a PyTorch script that keeps its process may have done wrong; loads no torch.

    ElasticRunError
    ├── UnsupportedState (TypeError)    a State is given what cannot travel, or ranks made theirs of different parts
    └── ProcessGroupExists          the script made process groups before elastic-run could

`StateLost` (`client/commits.py`) says that no living worker has the state.
"""

from ...rendezvous.errors import ElasticRunError


class UnsupportedState(ElasticRunError, TypeError):
    """A value that cannot travel; the text says which, and what to do."""

    __module__ = "elastic_run.exceptions"


class ProcessGroupExists(ElasticRunError):
    """The script has made process groups itself, before it asked for a ring."""

    __module__ = "elastic_run.exceptions"
