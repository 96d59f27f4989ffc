"""Draws the pictures of web pages in docs/pictures: the fleet's, and what a reader sees at the end of each tutorial.

python scripts/draw_web.py [NAME...]      all of them, or those of these names; needs Debian's chromium, and kubectl
"""

import asyncio
import random
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.lab.browsers import Tab, browsing, web_process
from tests.lab.tutorials import Reader

from purser.kube import Client
from purser.kube.resources import NAMESPACES, PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
TEAMS = ["chat", "search", "speech", "vision"]
JOBS = ["train", "serve", "tune", "notebook"]
SIZES_MIB = [2000, 4000, 8000, 12_000, 20_000, 30_000]
SEED = 3
SETTLES_MS = 5000
"""Until a change is no longer marked as one."""


async def main(names: list[str]) -> None:
    """Draw them."""
    for name in names or DRAWN:
        await DRAWN[name](PICTURES / f"{name}.png")


async def web_fleet(target: Path) -> None:
    """A lab with busy GPUs, one of which is lost."""
    async with pages(["a100-40gb-8:2", "t4-4:4"], 1200, 700) as (lab, tab):
        await _create_pods(lab.client)
        await tab.open("?colour=namespace")
        await tab.shows("[data-count=pods]", re.compile("[45][0-9]"))
        lab.lose_gpu("t4-4-1", 2)
        await tab.shows("[data-count=unhealthy]", "1")
        await _select_the_first_gpu(tab)
        await tab.page.screenshot(path=target)


async def first_share(target: Path) -> None:
    """The fleet's page, once replicas hold half a GPU each."""
    async with pages(["a100-40gb-8"], 1200, 640) as (lab, tab):
        await _follow(lab, "first-share", "purser get gpus")
        await tab.open("")
        await tab.shows("[data-count=pods]", "7")
        await _select_the_first_gpu(tab)
        await tab.page.screenshot(path=target)


async def first_lost_gpu(target: Path) -> None:
    """The node's page, as far as the pods that hold its GPUs."""
    async with pages(["t4-4"], 1180, 720) as (lab, tab):
        await _follow(lab, "first-lost-gpu", "kubectl describe pod share")
        await tab.open("nodes/t4-4-0")
        await tab.shows("table", re.compile("Unhealthy: Xid 79"))
        await _shoot_above(tab, "Hardware", target)


async def first_why(target: Path) -> None:
    """The pod's page, as far as what would make it fit."""
    async with pages(["t4-4"], 1000, 720) as (lab, tab):
        await _follow(lab, "first-why", "purser why share")
        await tab.open("waiting")
        await tab.page.get_by_role("link", name="default/share", exact=True).click()
        await tab.shows("pre", "7680 instead of 10240")
        await _shoot_above(tab, "Steps", target)


async def first_upgrade(target: Path) -> None:
    """The Operator page, as far as the operands, while a pod is in the upgrade's way."""
    async with pages(["t4-4:3"], 960, 720, operator=True) as (lab, tab):
        await _follow(lab, "first-upgrade", "kubectl get nodes -L nvidia.com/gpu-driver-upgrade-state")
        await tab.open("operator")
        await tab.shows("dd", "pod default/whole has no controller")
        table = await _box(tab, "table", "container-toolkit")
        await _shoot(tab, table["y"] + table["height"] + 12, target)


async def first_policy(target: Path) -> None:
    """The report's first plot."""
    with tempfile.TemporaryDirectory() as folder:
        await Reader(Path(folder)).follow("first-policy", "purser simulate --demo")
        async with browsing(f"file://{folder}/", viewport={"width": 1000, "height": 720}) as tab:
            await tab.open("report.html")
            await tab.page.locator("figure").first.screenshot(path=target)


DRAWN: dict[str, Callable[[Path], Awaitable[None]]] = {
    each.__name__.replace("_", "-"): each
    for each in (web_fleet, first_share, first_lost_gpu, first_why, first_upgrade, first_policy)
}


@asynccontextmanager
async def pages(nodes: list[str], width: int, height: int, operator: bool = False) -> AsyncIterator[tuple[Lab, Tab]]:
    """A lab, and a tab with its pages."""
    settings = LabSettings(node_choices(nodes), operator=operator, probe_interval_s=0.2)
    size = {"width": width, "height": height}
    async with Lab(settings) as lab:
        await lab.ready()
        async with web_process("--kubeconfig", lab.kubeconfig) as server, browsing(server.url, viewport=size) as tab:
            yield lab, tab


async def _follow(lab: Lab, tutorial: str, until_command: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await Reader(Path(folder), lab.kubeconfig).follow(tutorial, until_command)


async def _select_the_first_gpu(tab: Tab) -> None:
    await tab.page.locator("#tiles").focus()
    await tab.page.keyboard.press("Home")
    await tab.shows("#details", "GPU 0")
    await tab.page.locator("body").evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    await tab.page.wait_for_timeout(SETTLES_MS)


async def _shoot_above(tab: Tab, heading: str, target: Path) -> None:
    await _shoot(tab, (await _box(tab, "h2", heading))["y"], target)


async def _box(tab: Tab, selector: str, text: str) -> Any:
    return await tab.page.locator(selector).filter(has_text=text).first.bounding_box()


async def _shoot(tab: Tab, height: float, target: Path) -> None:
    """The page from its top to there."""
    width = tab.page.viewport_size["width"]
    await tab.page.screenshot(path=target, clip={"x": 0, "y": 0, "width": width, "height": height}, full_page=True)


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
    asyncio.run(main(sys.argv[1:]))
