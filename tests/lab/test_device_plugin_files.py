"""Nodes that go by files of NVIDIA's device plugin: replicas and MIG devices, from a pod's request to its container."""

from collections import Counter

import pytest

from purser.adapters.nodes import inventory_of
from purser.core.ledger import Ledger
from purser.core.sharing import CONFIG_LABEL
from purser.kube.resources import EVENTS, NODES
from purser.lab.cluster import Lab
from purser.lab.driver.node_mig import create_mig, set_mig
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.actions import (
    cards,
    create,
    delete,
    event,
    eventually,
    grant_of,
    is_running,
    pods,
    running,
)
from tests.scenarios.pods import GPU, pod, share

SLICED, CUT = "t4-4-0", "a100-40gb-8-0"
SHARED, SMALL, LARGE = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
ONE = "nvidia.com/gpu-0"
FILES = {
    "halves": "version: v1\n"
    "sharing:\n"
    "  timeSlicing:\n"
    "    renameByDefault: true\n"
    "    failRequestsGreaterThanOne: true\n"
    "    resources: [{name: nvidia.com/gpu, replicas: 2}]\n",
    "mixed": "version: v1\nflags: {migStrategy: mixed}\n",
    "bad": "version: v2\n",
    "one-card": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, rename: nvidia.com/gpu-0, "
    'devices: ["0"], replicas: 8}]}}\n',
}


class SharedCluster(LabCluster):
    """A lab with a node of each kind."""

    def __init__(self, lab):
        super().__init__(lab, "shared")
        self.nodes = lab.nodes

    async def go_by(self, node, name):
        """Name a node's file; None: none."""
        await self.client.patch_merge(NODES, node, {"metadata": {"labels": {CONFIG_LABEL: name}}})

    async def offers(self, node, wanted):
        """Wait until kubelet offers so many of each, and the scheduler can know them."""

        async def probe():
            told = await self.client.get(NODES, node)
            found = {name: int(told.status.allocatable.get(name, 0)) for name in wanted}
            known = Counter()
            for device in inventory_of(told).devices:
                known[device.resource] += device.slots * device.healthy
            assert found == {name: known[name] for name in wanted} == wanted, f"it offers {found}, of {known}"
            return True

        await eventually(self, f"{node} offers {wanted}", probe)

    async def run(self, limits, *names, **spec):
        """Have pods created that may go to any node."""
        await create(self, *(pod(self, name, limits, **{"nodeSelector": {}} | spec) for name in names))

    async def check_books(self):
        """Of every node: grants, ledger and kubelet say the same."""
        active = [each for each in await pods(self) if is_running(each) and grant_of(each)]
        for name, node in self.nodes.items():
            ledger, taken = Ledger(), Counter()
            ledger.set_inventory(inventory_of(await self.client.get(NODES, name)))
            held = await node.pod_resources()
            for each in active:
                if each["spec"]["nodeName"] == name:
                    ledger.adopt(grant_of(each))
                    [(resource, ids)] = held["shared", each["metadata"]["name"], "main"].items()
                    taken.update((resource, one) for one in ids)
                    assert {one.partition("::")[0] for one in ids} == set(cards(each))
            assert ledger.violations() == ()
            assert set(taken.values()) <= {1}, f"kubelet gave some twice: {taken}"


@pytest.fixture
async def shared(quiet_logs, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    nodes = node_choices(["t4-4", "a100-40gb-8"])
    async with Lab(LabSettings(nodes, device_plugin_configs=tmp_path, probe_interval_s=0.2)) as lab:
        async with waiting.limit():
            await lab.ready()
        cluster = SharedCluster(lab)
        await cluster.set_up()
        yield cluster


@pytest.mark.gate
async def test_pods_get_replicas_and_mig_devices_and_the_ledgers_agree(shared):
    driver = shared.nodes[CUT].driver
    set_mig(driver.folder, 0, enabled=True)
    small, large = [create_mig(driver.folder, 0, "1g.5gb") for _ in range(2)], create_mig(driver.folder, 0, "3g.20gb")
    await shared.go_by(SLICED, "halves")
    await shared.go_by(CUT, "mixed")
    await shared.offers(SLICED, {SHARED: 8, GPU: 0})
    await shared.offers(CUT, {SMALL: 2, LARGE: 1, GPU: 70})

    halves = [f"half-{n}" for n in range(3)]
    await shared.run({SHARED: "1"}, *halves)
    await shared.run({SHARED: "2"}, "two")
    await shared.run({SMALL: "1"}, "small-0", "small-1")
    await shared.run({LARGE: "1"}, "large")
    await shared.run(share(), "share")
    found = await running(shared, [*halves, "small-0", "small-1", "large", "share"])
    assert {name: each["spec"]["nodeName"] for name, each in found.items()} == {
        name: SLICED if name in halves else CUT for name in found
    }
    assert len({cards(found[name]) for name in halves}) == 3, "each of another GPU, as long as there is one"
    assert {cards(found[name]) for name in ("small-0", "small-1")} == {(uuid,) for uuid in small}
    assert cards(found["large"]) == (large,)
    assert cards(found["share"])[0] in driver.uuids[1:]
    told = {name: await shared.container_env(name, "main") for name in found}
    assert {name: told[name]["PURSER_GPU_ENFORCEMENT"] for name in ("half-0", "large")} == {
        "half-0": "time-slicing",
        "large": "mig",
    }
    assert told["large"]["NVIDIA_VISIBLE_DEVICES"] == large
    assert "CUDA_DEVICE_MEMORY_LIMIT_0" not in told["half-0"]
    await event(shared, "two", "FailedScheduling", "failRequestsGreaterThanOne")

    await shared.run({SMALL: "1"}, "small-2")
    await event(shared, "small-2", "FailedScheduling")
    await delete(shared, "small-1")
    freed = cards(found["small-1"])
    assert cards((await running(shared, ["small-2"]))["small-2"]) == freed
    await shared.check_books()

    # Another file while pods hold what the one before made: they keep it, and nobody gets it twice.
    await shared.go_by(SLICED, None)
    await shared.offers(SLICED, {SHARED: 0, GPU: 40})
    await shared.run(
        share(memory=7000), *(f"also-{n}" for n in range(4)), nodeSelector={"kubernetes.io/hostname": SLICED}
    )
    await running(shared, [*halves, *(f"also-{n}" for n in range(4))])
    await shared.check_books()
    await shared.go_by(SLICED, "bad")
    await eventually(shared, "the bad file is told", lambda: node_event(shared, "DevicePluginConfigNotUsable", "v2"))
    await shared.offers(SLICED, {SHARED: 0, GPU: 40})


@pytest.mark.gate
async def test_names_by_a_file_are_known_to_kube_scheduler_and_one_that_is_not_is_not_listed(shared, tmp_path):
    await shared.go_by(SLICED, "one-card")
    await shared.offers(SLICED, {ONE: 8, GPU: 30})
    await shared.run({ONE: "1"}, "on-one")
    (card,) = cards((await running(shared, ["on-one"]))["on-one"])
    assert card == shared.nodes[SLICED].driver.uuids[0]
    await delete(shared, "on-one")

    # kube-scheduler was started with the names of the files that there were.
    (tmp_path / "late").write_text(FILES["one-card"].replace("gpu-0", "gpu-9"))
    await shared.go_by(SLICED, "late")
    said = "resources[0] gives device 0 the name nvidia.com/gpu-9, about which kube-scheduler does not ask Purser"
    await eventually(shared, "the entry is named", lambda: node_event(shared, "DevicePluginConfigInPart", said))
    await shared.offers(SLICED, {"nvidia.com/gpu-9": 0, GPU: 30})


async def node_event(cluster, reason, part):
    found = (await cluster.client.list(EVENTS)).items
    return any(each.reason == reason and part in each.message for each in found)
