"""A headless chromium that selenium drives as a person does: mouse and keys."""

import base64
import re
import shutil
from pathlib import Path

try:
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError:
    webdriver = None

DRIVER = shutil.which("chromedriver")
# Why no browser can be driven here; None if one can.
MISSING = None if webdriver and DRIVER else "no python3-selenium or no chromium-driver (tests/plots/browser.sh)"
PATIENCE = 120.0  # seconds


class Browser:
    """One page in one browser; `errors` has what its scripts threw and its policy refused."""

    def __init__(self, width=1400, height=1000):
        options = webdriver.ChromeOptions()
        for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self._driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self._driver.set_script_timeout(PATIENCE)
        self._errors = []
        self.size(width, height)

    def close(self):
        self._driver.quit()

    @property
    def errors(self):
        # The browser asks by itself for the icon of a file that is not HTML.
        self._errors += [entry["message"] for entry in self._driver.get_log("browser")
                         if entry["level"] == "SEVERE" and "/favicon.ico - " not in entry["message"]]
        return self._errors

    def open(self, path, fragment=""):
        """Opens a file and waits until its scripts have run."""
        self.visit(Path(path).as_uri() + fragment)

    def visit(self, address):
        """The same of an address."""
        self._driver.get("about:blank")
        self.errors.clear()
        self._driver.get(address)

    def run(self, script):
        """Value of an expression in the page, or of its promise."""
        return self._driver.execute_script(f"return ({script})")

    def call(self, function, *arguments):
        """Value of a function of the page's language, called with arguments."""
        return self._driver.execute_script(f"return ({function})(...arguments)", *arguments)

    def wait(self, condition, seconds=PATIENCE):
        """Until a condition holds, on this page or on the one that a click leads to."""
        WebDriverWait(self._driver, seconds, 0.02, [WebDriverException]).until(lambda _: self.run(condition), condition)

    def _command(self, name, **arguments):
        return self._driver.execute_cdp_cmd(name, arguments)

    def size(self, width, height):
        self._command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=False)

    def media(self, scheme="light"):
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def without_scripts(self, off=True):
        self._command("Emulation.setScriptExecutionDisabled", value=off)

    def _place(self, selector):
        """Centre of an element, scrolled into view."""
        return self.call(
            "selector => { const e = document.querySelector(selector); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }", selector)

    def _mouse(self, x, y, *parts):
        """Moves to (x, y), then does `parts`: "down", "up" or another place."""
        chain = ActionChains(self._driver, duration=0)
        mouse = chain.w3c_actions.pointer_action
        mouse.move_to_location(round(x), round(y))
        for part in parts:
            if part == "down":
                mouse.pointer_down()
            elif part == "up":
                mouse.pointer_up()
            else:
                mouse.move_to_location(*map(round, part))
        chain.w3c_actions.perform()

    def hover(self, x, y):
        self._mouse(x, y)

    def click(self, target, count=1):
        """At a selector's centre or at (x, y)."""
        x, y = self._place(target) if isinstance(target, str) else target
        self._mouse(x, y, *("down", "up") * count)

    def drag(self, x, y, to_x, to_y):
        self._mouse(x, y, "down", *((x + part * (to_x - x), y + part * (to_y - y)) for part in (0.3, 0.7, 1.0)), "up")

    def press(self, *keys):
        """Keys by the page's names, "ArrowDown"."""
        for key in keys:
            self.type(getattr(Keys, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).upper()))

    def type(self, text):
        ActionChains(self._driver, duration=0).send_keys(text).perform()

    def select(self, selector, value):
        options = Select(self._driver.find_element(By.CSS_SELECTOR, selector)).options
        next(option for option in options if option.get_property("value") == value).click()

    def screenshot(self):
        return self._driver.get_screenshot_as_png()

    def pdf(self):
        return base64.b64decode(self._driver.print_page())
