"""A headless Chromium, spoken to in its own protocol over a pipe; nothing to install beside it."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


@dataclass
class Browser:
    """One page, and every event that it sent."""

    write_fd: int
    read_fd: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0
    _buffer: bytes = b""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, event: str) -> None:
        """Read on until this event has come."""
        while not any(seen.get("method") == event for seen in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, page: Path, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Load a file as a screen of this width would, and wait until it is drawn."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def screenshot(self) -> bytes:
        """A PNG of the screen."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        printed = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(printed["data"])

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self.read_fd], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium said nothing for {DEADLINE_S:.0f} s")
            received = os.read(self.read_fd, 1 << 16)
            if not received:
                raise ConnectionError("Chromium is gone")
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not installed (apt-get install chromium)"
)


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own, and end it with all that it started."""
    assert PROGRAM is not None
    to_browser, our_write = os.pipe()
    our_read, from_browser = os.pipe()

    def become_3_and_4() -> None:
        # Chromium reads commands at 3 and answers at 4. Copies first: the pipes may be 3 and 4.
        high_in, high_out = os.dup(to_browser), os.dup(from_browser)
        os.dup2(high_in, 3)
        os.dup2(high_out, 4)

    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=become_3_and_4,
            close_fds=False,
            start_new_session=True,
        )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield _attached(Browser(our_write, our_read))
    finally:
        os.close(our_write)  # Chromium ends when its pipe does
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        os.close(our_read)


def _attached(browser: Browser) -> Browser:
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    answer = browser.call("Target.attachToTarget", targetId=target, flatten=True)
    browser.session = answer["sessionId"]
    for domain in ("Page", "Runtime", "Network", "Log"):
        browser.call(f"{domain}.enable")
    return browser
