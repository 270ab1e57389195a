"""A page in a headless Chromium, asked over the Chrome DevTools Protocol: scripts to evaluate, and screenshots."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.browser.chromium import open_page
from tests.support.process import LOOPBACK, free_port, wait_until

MESSAGE_BYTES = 64 << 20
WINDOW = "--window-size=1280,640"


class BrowserPage:
    """One open page.

    ``messages`` are what the browser said of it: exceptions, errors that scripts told, and what a policy refused.
    ``failures`` are requests that failed, also those that a page means to try, such as one without a token.
    """

    def __init__(self, url: str, directory: Path) -> None:
        self._port = free_port()
        self._running = ExitStack()
        self._url, self._directory = url, directory
        self._number = 0
        self.messages: list[str] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        directory = self._directory
        directory.mkdir(exist_ok=True)
        flags = [f"--remote-debugging-port={self._port}", WINDOW, "--hide-scrollbars"]
        self._running.enter_context(open_page("about:blank", directory, flags))
        address = wait_until(self._address, "the page in the browser")
        self._socket: ClientConnection = self._running.enter_context(
            connect(address, max_size=MESSAGE_BYTES, proxy=None)
        )
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=self._url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def _address(self) -> str:
        try:
            found = httpx.get(f"http://{LOOPBACK}:{self._port}/json", trust_env=False).json()
        except httpx.TransportError as error:
            raise ConnectionError from error
        return next((each["webSocketDebuggerUrl"] for each in found if each["type"] == "page"), "")

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol; raises ``AssertionError`` where it fails, ``OSError`` if the page leaves."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                if "navigated" in str(message.get("error")):
                    raise ConnectionError(message["error"])  # as while the page is loaded again
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: Any) -> None:
        told = message["params"]
        if message["method"] == "Runtime.exceptionThrown":
            self.messages.append(str(told["exceptionDetails"]))
        elif message["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.messages.append(str(told["args"]))
        elif message["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
            entry = told["entry"]
            (self.failures if entry["source"] == "network" else self.messages).append(
                f"{entry['text']} {entry.get('url')}"
            )

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """The visible text of an element; empty if there is none."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait_for(self, words: str, selector: str = "body") -> str:
        """Wait until an element shows these words; its text."""
        wait_until(lambda: words in self.text(selector), f"{words!r} in {selector}", detail=lambda: self.text(selector))
        return self.text(selector)

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def go(self, path: str) -> None:
        """Another address of the same server, as from the address bar."""
        self.call("Page.navigate", url=self.evaluate("location.origin") + path)

    def look(self, scheme: str, width: int, height: int = 800) -> None:
        """The colors and the size of the window."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def press(self, key: str, shift: bool = False) -> None:
        """A key of the keyboard: a character, or a name such as ``Tab``."""
        named = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}
        typed = "\r" if key == "Enter" else "" if key in named else key
        code = named.get(key, ord(key[0].upper()))
        shared = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **({"text": typed} if typed else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)
