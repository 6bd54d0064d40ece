"""What a script that opens files can meet."""

from ...rendezvous.base.errors import ElasticRunError


class ReadersError(ElasticRunError, public=True):
    """Files of records cannot be read."""


class BadFiles(ReadersError, ValueError, public=True):
    """There are no such files, they do not fit together, or no reader can read them."""


class BadRecords(ReadersError, ValueError, public=True):
    """A record does not fit the columns; where such are skipped: there are too many of them."""


class FileChanged(ReadersError, RuntimeError, public=True):
    """A file is not the one any more that was opened: what its records are is not known."""
