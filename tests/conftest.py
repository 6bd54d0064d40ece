"""For all tests."""

import signal


def pytest_configure() -> None:
    """Shells and nohup ignore signals for what they run in the background, and so would every job of a test here."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
