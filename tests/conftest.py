"""For all tests."""

import signal


def pytest_configure() -> None:
    """A shell ignores Ctrl-C for what it runs in the background, and so would every job that a test starts here."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
