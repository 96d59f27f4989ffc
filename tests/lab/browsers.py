"""Debian's Chromium, driven by playwright; and `purser web` as a process."""

import asyncio
import re
import shutil
import sys
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import async_playwright

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")

_OPTIONS = (
    "--no-sandbox",  # tests run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Tab:
    """A page that has gone wrong nowhere: `problems` are errors of its console, and requests to elsewhere."""

    def __init__(self, page, url):
        self.page = page
        self.url = url
        self.problems = []
        self.is_cut_off = False
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("request", self._request)

    async def open(self, path):
        await self.page.goto(self.url + path, wait_until="domcontentloaded")

    async def shows(self, selector, text):
        """Wait until an element has a text."""
        await self.page.locator(selector).filter(has_text=text).first.wait_for()

    def _console(self, message):
        if message.type in ("error", "warning") and not self.is_cut_off:
            self.problems.append(f"console: {message.text}")

    def _request(self, request):
        if not request.url.startswith(self.url):
            self.problems.append(f"request: {request.url}")


@asynccontextmanager
async def browsing(url, **context):
    """A tab at the address of the pages. When it is left, nothing must have gone wrong."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(_OPTIONS))
        opened = await browser.new_context(**context)
        opened.set_default_timeout(120_000)
        tab = Tab(await opened.new_page(), url)
        try:
            yield tab
        finally:
            await browser.close()
    assert tab.problems == [], tab.problems


class WebProcess:
    """`purser web` with options."""

    def __init__(self, *options):
        self._options = options
        self._process = None
        self.url = ""

    async def start(self):
        """Start it, again on the same port."""
        port = self.url.rstrip("/").rpartition(":")[2] or "0"
        words = ("-m", "purser", "web", *map(str, self._options), "--port", port)
        self._process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
        line = (await self._process.stdout.readline()).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        self.url = found[0]

    async def stop(self):
        """As Ctrl-C does; its exit code."""
        self._process.terminate()
        return await self._process.wait()

    async def kill(self):
        """End it without asking."""
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def web_process(*options):
    """It runs until the context is left."""
    server = WebProcess(*options)
    await server.start()
    try:
        yield server
    finally:
        assert await server.stop() == 0
