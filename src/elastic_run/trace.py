"""A script's own events in the trace of its job (`elastic-run --trace=FILE`); without a trace they do nothing."""

from .adapters.client.script_trace import mark, span

__all__ = ["mark", "span"]


def __dir__() -> list[str]:
    return sorted(__all__)
