"""Emulated nodes under the operator: agents, discovery and MIG workers come and go with its pods."""

import asyncio
import io
import re
from pathlib import Path

import aiohttp
import pytest
import yaml
from rich.console import Console

from purser.core.names import DEFAULT_NAMESPACE, INVENTORY_ANNOTATION, KUBELET_ANNOTATION, NODE_FACTS_ANNOTATION
from purser.kube.config import ClusterConfig
from purser.kube.resources import CONFIG_MAPS, NODES
from purser.lab.cluster import Lab
from purser.lab.driver.node_mig import mig_states
from purser.lab.screen import show, surroundings
from purser.lab.settings import LabSettings, node_choices
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.uninstalling import uninstall
from tests import waiting

POLICIES = CLUSTER_POLICIES.raw()
LAYOUTS = """
version: v1
mig-configs:
  sevenths:
  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}
"""
PAGE = Path(__file__).parents[2] / "docs/operator.md"


@pytest.fixture
async def lab(quiet_logs):
    async with Lab(LabSettings(node_choices(["t4-4", "h100-8"]), operator=True, probe_interval_s=0.1)) as running:
        async with waiting.limit():
            await running.ready()
        yield running


@pytest.mark.gate
async def test_the_policy_of_the_operators_page_brings_nodes_their_agents_and_becomes_ready(lab):
    """Its requirements ask for models of cards, which discovery tells before there is a driver."""
    screen = io.StringIO()
    show(lab, 1.0, Console(file=screen, width=200), surroundings())
    assert all(str(node.metrics_port) in screen.getvalue() for node in lab.nodes.values()), "agents are yet to come"
    assert f"the operator on port {lab.operator_metrics_port}" in screen.getvalue()
    assert screen.getvalue().index("clusterpolicies.purser.dev --watch") < screen.getvalue().index("get gpus")
    assert not lab.nodes["t4-4-0"].agent.is_running
    policy = next(block for block in yaml_blocks(PAGE) if block.get("kind") == "ClusterPolicy")
    policy["spec"]["migManager"] = {**policy["spec"].get("migManager", {}), "config": {"name": "layouts"}}
    metadata = {"name": "layouts", "namespace": DEFAULT_NAMESPACE}
    await lab.client.create(CONFIG_MAPS, {"metadata": metadata, "data": {"config.yaml": LAYOUTS}})
    await lab.client.create(POLICIES, policy)
    await eventually(lambda: state(lab), "ready")
    await eventually(lambda: offered(lab), 40)
    await lab.client.patch_merge(NODES, "h100-8-0", {"metadata": {"labels": {"nvidia.com/mig.config": "sevenths"}}})
    await eventually(lambda: mig_state(lab), "success")
    assert [len(mig.devices) for mig in mig_states(lab.nodes["h100-8-0"].driver.folder)] == [7] * 8
    await agents_take_what_the_policy_says(lab)
    await lab.client.patch_merge(POLICIES, "gpus", {"spec": {"devicePlugin": {"enabled": False}}})
    await eventually(lambda: offered(lab), 0)


async def agents_take_what_the_policy_says(lab):
    async def change(section, **others):
        await lab.client.patch_merge(POLICIES, "gpus", {"spec": {"devicePlugin": section, **others}})

    async def product():
        return (await lab.client.get(NODES, "t4-4-0")).metadata.labels.get("nvidia.com/gpu.product")

    await change({"slots": 5, "featureLabels": "node-labels"}, gfd={"enabled": False})
    await eventually(lambda: offered(lab), 20)
    await eventually(product, "Tesla-T4")
    files = {"metadata": {"name": "files"}, "data": {"one": replicas(2)}}
    await lab.client.create(CONFIG_MAPS, files, DEFAULT_NAMESPACE)
    await change({"config": {"name": "files", "default": "one"}})
    await eventually(lambda: offered(lab), 8)
    await lab.client.patch_merge(CONFIG_MAPS, "files", {"data": {"one": replicas(3)}}, DEFAULT_NAMESPACE)
    await eventually(lambda: offered(lab), 12)
    url = f"http://127.0.0.1:{lab.nodes['t4-4-0'].metrics_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert "purser_device_healthy" in await answer.text()


def replicas(count):
    return f"version: v1\nsharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {count}}}]}}}}\n"


@pytest.mark.gate
async def test_nothing_that_agents_wrote_is_left_after_uninstalling(lab):
    await lab.client.create(POLICIES, {"metadata": {"name": "gpus"}})
    await eventually(lambda: state(lab), "ready")
    nodes = (await lab.client.list(NODES)).items
    written = {INVENTORY_ANNOTATION, KUBELET_ANNOTATION, NODE_FACTS_ANNOTATION}
    assert all(written <= node.metadata.annotations.keys() for node in nodes)
    async with waiting.limit():
        await uninstall(ClusterConfig.load(lab.kubeconfig), "purser-system", say=lambda text: None)
    await eventually(lambda: agents_run(lab), False)
    left = [(await lab.client.get(NODES, name)).metadata.annotations for name in lab.nodes]
    assert left == [{}, {}]


def yaml_blocks(page):
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return (yaml.load(block, yaml.CSafeLoader) for block in blocks)


async def offered(lab):
    node = await lab.client.get(NODES, "t4-4-0")
    return int(node.status.allocatable.get("nvidia.com/gpu", 0))


async def agents_run(lab):
    return any(node.agent.is_running for node in lab.nodes.values())


async def state(lab):
    return ((await lab.client.get(POLICIES, "gpus")).get("status") or {}).get("state")


async def mig_state(lab):
    return (await lab.client.get(NODES, "h100-8-0")).metadata.labels.get("nvidia.com/mig.config.state")


async def eventually(look, wanted):
    while (found := await look()) != wanted:
        assert not waiting.is_over(), f"{found}, not {wanted}"
        await asyncio.sleep(0.05)
