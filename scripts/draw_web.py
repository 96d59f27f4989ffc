"""Draws docs/pictures/web-fleet.png: the fleet's page on a lab with busy GPUs, one of which is lost.

python scripts/draw_web.py      needs Debian's chromium
"""

import asyncio
import random
import re
from pathlib import Path

from tests.lab.browsers import browsing, web_process

from purser.kube import Client
from purser.kube.resources import NAMESPACES, PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices

TARGET = Path(__file__).parents[1] / "docs" / "pictures" / "web-fleet.png"
NODES = ["a100-40gb-8:2", "t4-4:4"]
SIZE = {"width": 1280, "height": 720}
TEAMS = ["chat", "search", "speech", "vision"]
JOBS = ["train", "serve", "tune", "notebook"]
SIZES_MIB = [2000, 4000, 8000, 12_000, 20_000, 30_000]
SEED = 3


async def main() -> None:
    """Draw it."""
    async with Lab(LabSettings(node_choices(NODES), probe_interval_s=0.2)) as lab:
        await lab.ready()
        await _create_pods(lab.client)
        async with web_process("--kubeconfig", lab.kubeconfig) as server, browsing(server.url, viewport=SIZE) as tab:
            await tab.open("?colour=namespace")
            await tab.shows("[data-count=pods]", re.compile("[45][0-9]"))
            lab.lose_gpu("t4-4-1", 2)
            await tab.shows("[data-count=unhealthy]", "1")
            await tab.page.locator("#tiles").focus()
            await tab.page.keyboard.press("Home")
            await tab.shows("#details", "a100-40gb-8-0")
            await tab.page.locator("body").evaluate("document.activeElement.blur()")
            await tab.page.wait_for_timeout(5000)
            await tab.page.screenshot(path=TARGET)


async def _create_pods(client: Client) -> None:
    dice = random.Random(SEED)
    for team in TEAMS:
        await client.create(NAMESPACES, {"metadata": {"name": team}})
    for number in range(60):
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(dice.choice(SIZES_MIB))}
        container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
        metadata = {"name": f"{dice.choice(JOBS)}-{number}", "namespace": dice.choice(TEAMS)}
        await client.create(PODS, {"metadata": metadata, "spec": {"containers": [container]}})


if __name__ == "__main__":
    asyncio.run(main())
