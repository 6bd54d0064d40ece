"""A headless Chromium, spoken to by its own protocol over a pipe: for tests of pages, without a further package."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

SECONDS = 120.0
"""For one answer, on a machine that is busy."""

_BEGIN = "import os,sys; r,w=map(int,sys.argv[1:3]); os.dup2(r,3); os.dup2(w,4); os.execv(sys.argv[3],sys.argv[3:])"


class Browser:
    """One page of one browser. `failures`: what the page's console called an error, policy violations included."""

    def __init__(self, program: str, folder: Path) -> None:
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        high = [fcntl.fcntl(each, fcntl.F_DUPFD, 100) for each in (commands, answers)]
        words = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
            "--force-color-profile=srgb", f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, *map(str, high), program, *words],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in (commands, answers, *high):
            os.close(each)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.failures: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        """Ends it."""
        self._session = ""
        with contextlib.suppress(OSError, AssertionError):
            self.ask("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def ask(self, method: str, **params: Any) -> Any:
        """One call of the protocol, and its result (hence Any)."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            found = self._next(until)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        if found.get("method") == "Log.entryAdded" and found["params"]["entry"]["level"] == "error":
            self.failures.append(found["params"]["entry"]["text"])
        if found.get("method") == "Runtime.exceptionThrown":
            self.failures.append(json.dumps(found["params"]["exceptionDetails"]))
        return found

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """As wide and high as a screen, and in its colours."""
        phone = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        """Opens a page, and waits until it is there."""
        self.ask("Page.navigate", url=url)
        self.until(
            lambda: self.value("document.readyState") == "complete" and self.value("location.href") != "about:blank"
        )

    def value(self, expression: str) -> Any:
        """Of a JavaScript expression (hence Any)."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    @property
    def text(self) -> str:
        """What a person reads; nothing while a page is on its way."""
        return str(self.value("document.body ? document.body.innerText : ''"))

    def until(self, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        """Waits until it holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds:g} s in vain; the page says:\n{self.text}"
            time.sleep(0.1)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key."""
        extra = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            more = extra if kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def picture(self, file: Path) -> None:
        """A screenshot of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def opened() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    program = next((found for each in PROGRAMS if (found := shutil.which(each))), None)
    if program is None:
        pytest.skip("there is no chromium: sh tests/install_chromium.sh installs Debian's")
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder:
        browser = Browser(program, Path(folder))
        try:
            yield browser
        finally:
            browser.close()
