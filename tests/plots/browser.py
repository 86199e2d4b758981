"""A headless chromium that is driven as a person drives it: mouse, keys, downloads.

The DevTools protocol over a pipe (--remote-debugging-pipe): one JSON message, then a zero byte, on file
descriptors 3 and 4. Nothing but the standard library is needed.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAM = next(filter(None, map(shutil.which, (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Escape": 27,
        "Tab": 9, "Home": 36, "End": 35}
PATIENCE = 120.0
# What the protocol answers, with the code of every error of a server, to an expression whose page a link left meanwhile.
LEFT = ("Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context")


class PageLeft(RuntimeError):
    """The page that was asked gave way to the next one before it answered."""


class Browser:
    """One page in one browser; `errors` has what its scripts threw and its policy refused."""

    def __init__(self, width=1400, height=1000):
        self.folder = Path(tempfile.mkdtemp(prefix="kvbench-browser-"))
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()

        def place():  # the browser reads from 3 and writes to 4
            read, write = os.dup(to_read), os.dup(to_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder / 'profile'}", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._number, self._pending, self._session, self.errors = 0, b"", None, []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.downloads = self.folder / "downloads"
        self.downloads.mkdir()
        self._call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads),
                   browserContextId=None)
        self.size(width, height)

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _message(self, deadline):
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise EOFError("the browser ended")
            self._pending += part
        text, self._pending = self._pending.split(b"\0", 1)
        return json.loads(text)

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method,
                   "params": {name: value for name, value in params.items() if value is not None}}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._to, content):]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    if answer["error"].get("message", "").startswith(LEFT):
                        raise PageLeft(answer["error"]["message"])
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def open(self, path, fragment=""):
        """Opens a file and waits until its scripts have run."""
        self.visit(Path(path).as_uri() + fragment)

    def visit(self, address):
        """The same of an address."""
        self._call("Page.navigate", url="about:blank")
        self.errors.clear()
        answer = self._call("Page.navigate", url=address)
        if "errorText" in answer:
            raise RuntimeError(f"{address}: {answer['errorText']}")
        self.wait("document.readyState === 'complete' && location.protocol !== 'about:'")

    def run(self, script):
        """Value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True,
                            awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def call(self, function, *arguments):
        """Value of a function of the page's language, called with arguments."""
        return self.run(f"({function})({', '.join(map(json.dumps, arguments))})")

    def _holds(self, condition):
        try:
            return self.run(f"Boolean({condition})")
        except PageLeft:
            return False

    def wait(self, condition, seconds=PATIENCE):
        """Until a condition holds, on this page or on the one that a click leads to."""
        deadline = time.monotonic() + seconds
        while not self._holds(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def size(self, width, height):
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=False)

    def media(self, scheme="light", kind=""):
        self._call("Emulation.setEmulatedMedia", media=kind,
                   features=[{"name": "prefers-color-scheme", "value": scheme}])

    def without_scripts(self, off=True):
        self._call("Emulation.setScriptExecutionDisabled", value=off)

    def place(self, selector):
        """Centre of an element, scrolled into view."""
        return self.call(
            "selector => { const e = document.querySelector(selector); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }",
            selector)

    def _mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x, y):
        self._mouse("mouseMoved", x, y)

    def click(self, target, count=1):
        """At a selector's centre or at (x, y)."""
        x, y = self.place(target) if isinstance(target, str) else target
        self._mouse("mouseMoved", x, y)
        for number in range(1, count + 1):
            self._mouse("mousePressed", x, y, button="left", buttons=1, clickCount=number)
            self._mouse("mouseReleased", x, y, button="left", clickCount=number)

    def drag(self, x, y, to_x, to_y):
        self._mouse("mouseMoved", x, y)
        self._mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for part in (0.3, 0.7, 1.0):
            self._mouse("mouseMoved", x + part * (to_x - x), y + part * (to_y - y), button="left",
                        buttons=1)
        self._mouse("mouseReleased", to_x, to_y, button="left", clickCount=1)

    def press(self, *keys):
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                           windowsVirtualKeyCode=KEYS[key],
                           text="\r" if key == "Enter" and kind == "keyDown" else None)

    def type(self, text):
        self._call("Input.insertText", text=text)

    def select(self, selector, value):
        """Chooses an option as a person does: the element changes and says so."""
        self.call("(selector, value) => { const e = document.querySelector(selector); e.value = value;"
                  "e.dispatchEvent(new Event('change', {bubbles: true})); }", selector, value)

    def downloaded(self, name):
        deadline = time.monotonic() + PATIENCE
        path = self.downloads / name
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {name}, but {list(self.downloads.iterdir())}")
            time.sleep(0.05)
        return path.read_text(encoding="utf-8")

    def screenshot(self, path=None, whole=False):
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole or None)
        content = base64.b64decode(answer["data"])
        if path:
            Path(path).write_bytes(content)
        return content

    def pdf(self):
        return base64.b64decode(self._call("Page.printToPDF")["data"])
