"""A browser without a window, driven by Chromium's DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.chromium.program import find_program
from tools.servers import NotAvailableError

REPLY_SECONDS_MAX = 60
READ_BYTES = 1 << 20
# File descriptors that the browser reads commands from, and writes replies to.
COMMANDS, REPLIES = 3, 4
OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # it shows only what the tests have made; and root may not have one
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
# Two frames: what an event asks for is drawn in the next one.
SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"


class BrowserError(Exception):
    """The browser refused a command, or a page threw an exception."""


class Browser:
    """A browser, from `start` until `stop`; a context manager. It ends with its process.

    Raises
    ------
    NotAvailableError
        It can't be had on this machine, or does not start.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._write = self._read = -1
        self._number = 0
        self._rest = b""
        self._messages: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the browser."""
        program = find_program()
        self._folder = tempfile.mkdtemp(prefix="chromium-")
        theirs_read, self._write = os.pipe()
        self._read, theirs_write = os.pipe()

        def place() -> None:
            # First out of the way: either may have the other's number.
            commands, replies = os.dup(theirs_read), os.dup(theirs_write)
            while commands <= REPLIES:
                commands = os.dup(commands)
            while replies <= REPLIES:
                replies = os.dup(replies)
            os.dup2(commands, COMMANDS)
            os.dup2(replies, REPLIES)

        self._process = subprocess.Popen(
            [program.path, *OPTIONS, f"--user-data-dir={self._folder}", "about:blank"],
            env=program.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,  # Python's own are closed by exec
            preexec_fn=place,
            start_new_session=True,
        )
        os.close(theirs_read)
        os.close(theirs_write)
        try:
            self.call("Browser.getVersion")
        except (BrowserError, OSError) as error:
            self.stop()
            raise NotAvailableError(f"{program.path} does not start: {error}") from None

    def stop(self) -> None:
        """End the browser, and delete its folder; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._write)
        os.close(self._read)
        process.kill()
        process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, path: Path, *, width: int = 1280, height: int = 900) -> Page:
        """Open a file of this machine, and wait until it is drawn."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.load(path)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command; its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        kept: list[dict[str, Any]] = []
        while True:
            found = self._next()
            if found.get("id") == self._number:
                self._messages += kept
                if "error" in found:
                    raise BrowserError(f"{method}: {found['error']['message']}")
                return dict(found["result"])
            kept.append(found)

    def events(self, session: str) -> list[dict[str, Any]]:
        """Events of a page that have come since the last call."""
        found = [each for each in self._messages if each.get("sessionId") == session]
        self._messages = [each for each in self._messages if each.get("sessionId") != session]
        return found

    def _next(self) -> dict[str, Any]:
        """The next message that the browser sends."""
        ends = time.monotonic() + REPLY_SECONDS_MAX
        while b"\0" not in self._rest:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._read, selectors.EVENT_READ)
                if not waiting.select(max(ends - time.monotonic(), 0)):
                    raise BrowserError(f"no reply in {REPLY_SECONDS_MAX} s")
            data = os.read(self._read, READ_BYTES)
            if not data:
                raise BrowserError("the browser has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))


class Page:
    """A page in a tab of its own."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self._events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the page; its result."""
        return self._browser.call(method, self._session, **parameters)

    def load(self, path: Path) -> None:
        """Load a file, and wait until it is drawn."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        ends = time.monotonic() + REPLY_SECONDS_MAX
        while self.evaluate("document.readyState") != "complete":
            if time.monotonic() > ends:
                raise BrowserError(f"{path} was not loaded in {REPLY_SECONDS_MAX} s")
            time.sleep(0.02)
        self.settle()

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def resize(self, width: int, height: int, *, scale: float = 1) -> None:
        """Set the size of the window, in pixels of the page."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def scheme(self, name: str) -> None:
        """Ask for ``light`` or ``dark`` colours."""
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": name}],
        )
        self.settle()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, as JSON says it; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            said = details.get("exception", {}).get("description", details.get("text"))
            raise BrowserError(f"{expression}: {said}")
        return found["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.evaluate(SETTLED)

    def text(self, selector: str) -> str:
        """The text of the first element that a selector finds."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def move(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, x: float, y: float) -> None:
        """Press the pointer's button and let it go."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def press(self, key: str, *, text: str = "") -> None:
        """Press a key where the focus is."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, selector: str, text: str) -> None:
        """Type a text into an empty field."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{field}.focus(); {field}.select()")
        self.call("Input.insertText", text=text)
        self.settle()

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(
            f"{field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('change'))"
        )
        self.settle()

    def screenshot(self, path: Path) -> None:
        """Write what the window shows to a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def errors(self) -> list[str]:
        """Exceptions, and errors that the console shows."""
        found = []
        for event in self._seen():
            details = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"].get("exception", details)))
            elif event["method"] == "Log.entryAdded" and details["entry"]["level"] == "error":
                found.append(str(details["entry"]["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] == "error":
                found.append(str(details["args"]))
        return found

    def requests(self) -> list[str]:
        """URLs that the page has asked for, its own too."""
        return [
            str(event["params"]["request"]["url"])
            for event in self._seen()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _seen(self) -> list[dict[str, Any]]:
        self._events += self._browser.events(self._session)
        return self._events
