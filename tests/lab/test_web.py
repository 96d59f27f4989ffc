"""The pages of `purser web` on a lab, in a real browser, while the cluster changes and breaks."""

import asyncio
import base64
import re
from contextlib import asynccontextmanager
from pathlib import Path

import axe_playwright_python
import msgspec
import pytest
import yaml
from yarl import URL

from purser.core.model import Device, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION
from purser.kube import NotFoundError
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy import CLUSTER_POLICIES, crd
from purser.web.streaming import MAX_STREAMS
from tests import waiting
from tests.unit.kube.servers import serving
from tests.unit.operator.embedded import eventually
from tests.unit.web.pages import unread
from tests.unit.web.test_operator_page import STATUS as HALTED_STATUS
from tests.unit.web.test_use_over_time import FakePrometheus

from .browsers import browsing, needs_chromium, web_process

pytestmark = [pytest.mark.gate, pytest.mark.processes, needs_chromium]

HIDDEN_PART_OF_CURRENT_LINK = """() => {
  const link = document.querySelector(".top nav [aria-current]");
  const [inner, outer] = [link, link?.closest("nav")].map((each) => each?.getBoundingClientRect());
  return link === null ? 0 : Math.max(outer.left - inner.left, inner.right - outer.right);
}"""
"""In pixels."""
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")


def share(name, memory_mib, namespace="default", **more):
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib)} | more
    container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": [container]}}


@asynccontextmanager
async def pages(*options):
    settings = LabSettings(node_choices(["t4-4:2"]), probe_interval_s=0.1)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        async with web_process("--kubeconfig", lab.kubeconfig, *options) as server:
            yield lab, server


WORN_GPU = Device("GPU-worn", 0, "Tesla T4", 1000, degraded_reason="2 of 12 NVLinks are down")
INVENTORY = msgspec.json.encode(NodeInventory("worn", (WORN_GPU,))).decode()
WORN = {"metadata": {"name": "worn", "annotations": {INVENTORY_ANNOTATION: INVENTORY}}}


async def test_the_pages_follow_the_cluster(quiet_logs):
    async with pages() as (lab, server), browsing(server.url, viewport={"width": 1280, "height": 800}) as tab:
        page = tab.page
        await tab.open("")
        await tab.shows("[data-count=gpus]", re.compile("^8$"))

        # Pods that come are seen on the fleet's page, and on the others.
        await lab.client.create(PODS, share("small", 4000))
        await tab.shows("[data-count=pods]", re.compile("^1$"))
        await page.keyboard.press("/")
        await page.keyboard.type("small")
        await tab.shows("#match-count", "1 of 8 GPUs")
        await page.locator("#tiles").focus()
        await page.keyboard.press("Home")
        await tab.shows("#details", "default/small")
        await page.wait_for_url(re.compile("gpu=GPU-"))
        holder = re.search("gpu=(GPU-[0-9a-f-]+)", page.url)[1]

        # Nodes are grouped by the labels that say where they are.
        await lab.client.patch_merge(NODES.raw(), "t4-4-0", {"metadata": {"labels": {"example.com/rack": "r1"}}})
        by_rack = page.locator("#toolbar select[name=group] option", has_text="label example.com/rack")
        await by_rack.wait_for(state="attached")
        await page.get_by_label("Group by").select_option("label:example.com/rack")
        await page.wait_for_url(re.compile("group=label%3Aexample.com%2Frack"))

        # A view is an address.
        await page.reload()
        await tab.shows("#details", "default/small")
        await page.locator("#tiles").focus()
        await page.keyboard.press("Enter")
        await tab.shows("main", "default/small")
        assert page.url.endswith(f"/gpus/{holder}")
        await page.get_by_role("link", name="default/small").click()
        await tab.shows("tbody th", "Scheduled, and GPUs granted")
        await tab.open(f"gpus/{holder}")

        # A GPU that is lost is sick at once on its page, then on the fleet's, and in the table.
        node = next(name for name, each in lab.nodes.items() if holder in each.driver.uuids)
        index = lab.nodes[node].driver.uuids.index(holder)
        lab.lose_gpu(node, index)
        await tab.shows("dd .status-bad", "Unhealthy")
        await tab.open("?health=Unhealthy")
        await tab.shows("#match-count", "1 of 8 GPUs")
        await page.get_by_label("Find").fill(node)
        await page.locator("#as-table[href*=find]").click()
        await page.wait_for_url(f"**/nodes?find={node}&health=Unhealthy")
        await tab.shows("td .status-bad", "1 GPU unhealthy")
        await tab.open(f"nodes/{node}")
        await tab.shows(".matrix caption", "Links between GPUs")
        await tab.shows("tbody th", "GpuUnhealthy")
        await tab.open(f"nodes?health=Unhealthy&find={node}")
        lab.recover_gpu(node, index)
        await tab.shows("td", "No node matches.")

        # Who waits hears why, and what would help.
        await tab.open("waiting")
        await tab.shows("main", "No pod that asks for a GPU is waiting.")
        await lab.client.create(PODS, share("large", 20_000))
        await tab.shows("h2", "CardInsufficientMemory")
        await is_drained(lab.client, "t4-4-1")
        await tab.shows(".notice", "t4-4-1 (driver upgrade: draining the node)")
        await tab.open("?find=large")
        await page.get_by_role("link", name="Find waiting pods").click()
        await tab.shows("main", "1 of 1 waiting pods matches")
        await page.get_by_role("link", name="default/large", exact=True).click()
        await tab.shows(".verdict", "default/large waits")
        await tab.shows("pre", "memory")
        await tab.shows("pre", re.compile("(Each of these changes alone|This change) makes the pod fit now"))

        # Where too many pages are open, the oldest one says so.
        async with unread(URL(server.url).port, MAX_STREAMS):
            await tab.shows("#problem", "Too many pages are open")
        await tab.open("pods/default/large")
        await tab.shows(".verdict", "default/large waits")

        # The server ends, and is started again: the page says so, and goes on where the cluster is by then.
        tab.is_cut_off = True
        await server.kill()
        await tab.shows("#problem", "connection to Purser was lost")
        await lab.client.delete(PODS, "large", "default")
        await server.start()
        await tab.shows("main", "no longer exists")
        await page.locator("#problem").wait_for(state="hidden")

        # So does the fleet's page, with the API server away: what it was is shown, with the problem.
        await tab.open("")
        await tab.shows("[data-count=gpus]", re.compile("^8$"))
        away = asyncio.ensure_future(lab.cut_api_server(5))
        await tab.shows("#problem", "not up to date")
        await tab.shows("[data-count=pods]", re.compile("^1$"))
        await away
        await page.locator("#problem").wait_for(state="hidden")
        await lab.client.delete(PODS, "small", "default")
        await tab.shows("[data-count=pods]", re.compile("^0$"))

        # A node that goes takes its GPUs along.
        await lab.client.delete(NODES, node)
        await tab.shows("[data-count=gpus]", re.compile("^4$"))

        # A GPU that takes pods and has a problem is found as well.
        await a_gpu_is_worn(lab.client)
        await page.locator("[data-notice=degraded].is-raised").wait_for()
        await tab.open("?health=Degraded")
        await tab.shows("#match-count", "1 of 5 GPUs")
        await tab.open("gpus/GPU-worn")
        await tab.shows("dd .status-warn", "Degraded")
        await tab.shows("dd", WORN_GPU.degraded_reason)


async def test_people_log_in_with_a_token_of_their_own(quiet_logs, tmp_path):
    settings = LabSettings(node_choices(["t4-4"]), probe_interval_s=0.1)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        (webhooks,) = (await lab.client.list(MUTATING_WEBHOOKS)).items
        ca, token = tmp_path / "ca.crt", token_of(lab)
        ca.write_bytes(base64.b64decode(webhooks["webhooks"][0]["clientConfig"]["caBundle"]))
        await lab.client.create(PODS, share("small", 4000))
        options = ("--scheduler", f"https://localhost:{lab.read_api_port}", "--certificate-authority", ca)
        async with web_process(*options) as server:
            url = server.url.replace("127.0.0.1", "localhost")  # which browsers count as secure
            async with browsing(url, viewport={"width": 1280, "height": 800}) as tab:
                page = tab.page
                await tab.open("nodes")
                await tab.shows("h1", "Log in")
                assert await axe_violations(page) == []
                tab.is_cut_off = True  # a refusal is an error on the console
                await page.get_by_label("Token").fill("nobody")
                await page.get_by_role("button", name="Log in").click()
                await tab.shows("[role=alert]", "is not known, has expired")
                tab.is_cut_off = False
                await page.get_by_label("Token").fill(token)
                await page.get_by_role("button", name="Log in").click()
                await tab.shows("caption", "1 of 1 nodes")
                await tab.open("")
                await tab.shows("[data-count=pods]", re.compile("^1$"))
                await tab.open("pods/default/small")
                await tab.shows("tbody th", "Scheduled, and GPUs granted")
                await tab.shows("tbody th", re.compile("^Granted$"))
                await tab.open("")
                await lab.client.delete(PODS, "small", "default")
                await tab.shows("[data-count=pods]", re.compile("^0$"))
                await tab.open("nodes/t4-4-0")
                await tab.shows(".matrix caption", "Links between GPUs")
                await lab.client.create(PODS, share("large", 20_000))
                await tab.open("waiting")
                await tab.shows("td", re.compile("^container c requests nvidia.com/gpumem: [0-9]+ instead of 20000$"))
                await a_quota_is_full(lab.client)
                await tab.shows("td", "4,000 of 5,000 MiB")
                await tab.shows("td", "team-a/holds (4,000 MiB)")
                await tab.shows("section p", "The only pod known to hold 1,000 to 4,000 MiB of 1 GPU now had waited")
                picky = share("picky", 1000)
                picky["spec"]["nodeSelector"] = {"disk": "ssd"}
                await lab.client.create(PODS, picky)
                await tab.shows(
                    "td", "last message from purser-scheduler: 0/1 nodes are available: 1 node(s) didn't match"
                )
                await page.get_by_role("link", name="see the pod's page: default/picky").click()
                await tab.shows("p", "also asks kube-scheduler's filters")
                await page.get_by_role("button", name="Log out").click()
                await tab.shows("h1", "Log in")
                await tab.open("nodes/t4-4-0")
                await tab.shows("h1", "Log in")


def token_of(lab):
    return yaml.safe_load(lab.kubeconfig.read_text())["users"][0]["user"]["token"]


async def test_everybody_can_read_the_pages(quiet_logs):
    async with serving(FakePrometheus().handle) as prometheus, pages("--prometheus", prometheus) as (lab, server):
        for name in ("one", "two"):
            await lab.client.create(PODS, share(name, 4000))
        await lab.client.create(PODS, share("large", 20_000))
        lab.lose_gpu("t4-4-1", 3)
        await a_quota_is_full(lab.client)
        await an_upgrade_halts(lab.client)
        await is_drained(lab.client, "t4-4-0")
        for width in (360, 1920):
            async with browsing(server.url, viewport={"width": width, "height": 900}) as tab:
                assert await axe_problems(tab, lab.nodes["t4-4-1"].driver.uuids[3]) == {}, width


async def a_gpu_is_worn(client):
    """On a node without a kubelet: what a T4 of the lab has takes it out of service."""
    await client.create(NODES, WORN)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch_merge(NODES.raw(), "worn", {"status": ready}, subresource="status")


async def a_quota_is_full(client):
    """A pod of team-a waits for what another one holds."""
    await client.create(NAMESPACES, {"metadata": {"name": "team-a"}})
    spec = {"hard": {"limits.nvidia.com/gpumem": "5000"}}
    await client.create(RESOURCE_QUOTAS, {"metadata": {"name": "gpus", "namespace": "team-a"}, "spec": spec})
    await client.create(PODS, share("holds", 4000, "team-a"))
    await eventually(lambda: _is_on_a_node(client, "holds", "team-a"))
    await client.create(PODS, share("waits", 2000, "team-a"))


async def _is_on_a_node(client, name, namespace):
    return bool((await client.get(PODS, name, namespace)).spec.node_name)


async def is_drained(client, node):
    """As the operator drains a node for a driver upgrade."""
    metadata = {
        "labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"},
        "annotations": {"purser.dev/cordoned-by": "driver-upgrade"},
    }
    await client.patch_merge(NODES.raw(), node, {"metadata": metadata, "spec": {"unschedulable": True}})


async def an_upgrade_halts(client):
    """As an operator leaves it, which this lab has not."""
    await client.create(DEFINITIONS, crd.definition())
    await eventually(lambda: _creates(client, CLUSTER_POLICIES, {"metadata": {"name": "gpus"}, "spec": {}}))
    await client.patch_merge(CLUSTER_POLICIES.raw(), "gpus", {"status": HALTED_STATUS}, subresource="status")
    labels = {"nvidia.com/gpu.deploy.driver": "true", "nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}
    await client.patch_merge(NODES.raw(), "t4-4-0", {"metadata": {"labels": labels}})


async def _creates(client, resource, manifest):
    try:
        await client.create(resource, manifest)
    except NotFoundError:  # not served yet
        return False
    return True


async def axe_problems(tab, sick):
    """What axe-core finds wrong, and pages that are wider than the window, by page."""
    await tab.open(f"gpus/{sick}")
    await tab.shows("dd .status-bad", "Unhealthy")
    await tab.open("waiting")
    await tab.shows("main", "CardInsufficientMemory")
    await tab.shows(".notice", "draining the node")
    await tab.shows("td", "4,000 of 5,000 MiB")
    of_one = (
        "nodes/t4-4-0",
        "nodes/t4-4-1",
        f"gpus/{sick}",
        "pods/default/large",
        "pods/default/one",
        "pods/default/nobody",
        "pods/team-a/waits",
    )
    found = {}
    for path in ("", "?colour=used", f"?gpu={sick}", "nodes", "waiting", "use", "operator", *of_one):
        tab.is_cut_off = path.endswith("nobody")  # a 404 is an error on the console
        await tab.open(path)
        await tab.shows("h1", re.compile("."))
        if path.startswith(("gpus", "nodes/", "use", "pods/default/one")):
            await tab.page.locator("figure svg").first.wait_for()
        problems = []
        for scheme in ("light", "dark"):
            await tab.page.emulate_media(color_scheme=scheme)
            problems += [(scheme, *each) for each in await axe_violations(tab.page)]
        beyond = await tab.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        problems += [("too wide", beyond)] if beyond > 0 else []
        hidden = await tab.page.evaluate(HIDDEN_PART_OF_CURRENT_LINK)
        problems += [("the current page's link is out of view", hidden)] if hidden > 1 else []
        if problems:
            found[path] = problems
    return found


async def axe_violations(page):
    await page.evaluate(AXE.read_text())
    violations = (await page.evaluate("axe.run()"))["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations]
