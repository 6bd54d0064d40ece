"""Names of other launchers, for programs that call them today."""

from .launcher.launch import elastic_launch

__all__ = ["elastic_launch"]


def __dir__() -> list[str]:
    return sorted(__all__)
