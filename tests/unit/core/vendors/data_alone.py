"""From pod to grant for a family that is only in the data file of the package that this imports: see
test_by_data_alone.py. In the simulator, then in the lab: hollow nodes, webhook, scheduler, the vendor's plugin."""

import asyncio
import json
import sys
from pathlib import Path

from tests.unit.scheduler.extender_world import eventually, replica, server
from tests.unit.scheduler.reviews import container, patched, pod, review
from tests.unit.simulator.builders import as_listed

from purser.core.vendors.catalogue import FAMILIES
from purser.kube.resources import NODES, PODS
from purser.lab.hollow import HollowFleet, HollowNodes, manifests
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import decode_review, encode_review
from purser.simulator import arrivals
from purser.simulator.yamlfile import read_workload

ACME, ACME_MEM = "acme.com/npu", "acme.com/npu-memory"
SHARE = {ACME: "1", ACME_MEM: "3"}
LIST = """
nodes: [{name: nvidia, gpus: 2, model: T4}, {name: acme, gpus: 2, family: Acme NPU}]
pods: [{name: p, count: 5, gpus: 1, gpu_milli: 500, family: Acme NPU}]
"""


async def lab() -> dict[str, object]:
    async with server() as api, replica(api, families=FAMILIES) as world:
        hollow = asyncio.create_task(HollowFleet(world.client, start_s=0, stop_s=0).run())
        for node in manifests(HollowNodes(name="acme", gpus=2, family="Acme NPU")):
            await world.client.create(NODES, node)
        await eventually(
            lambda: (found := world.cache.fleet.node("acme-0")) and found.devices[0].device.healthy  # type: ignore[arg-type,return-value]
        )
        obj = pod(container(limits=SHARE))
        obj["metadata"] |= {"name": "p", "namespace": "default"}
        request = decode_review(json.dumps(review(obj)).encode())
        answer = encode_review(
            request, Mutation(fleet=world.cache, devices=DeviceRules(families=["Acme NPU"])).review(request)
        )
        created = await world.client.create(PODS, patched(obj, json.loads(answer)["response"]))
        await eventually(lambda: world.cache.pod_by_uid(created.metadata.uid) is not None)
        fitting = await world.filter(created, "acme-0")
        error = await world.bind(created, "acme-0")
        await eventually(lambda: (known := world.cache.pod("default", "p")) and known.status.phase == "Running")  # type: ignore[arg-type,return-value]
        grant = await world.grant_on(created)
        there = (await world.stored(created)).metadata.annotations
        node = (await world.client.get(NODES, "acme-0")).metadata.annotations
        hollow.cancel()
        await asyncio.gather(hollow, return_exceptions=True)
        assert grant is not None
        return {
            "fitting": fitting.node_names,
            "error": error,
            "shares": [[share.uuid, share.memory_mib, share.family] for share in grant.containers[0].shares],
            "phase": there["hami.io/bind-phase"],
            "allocated": there["hami.io/acme-devices-allocated"],
            "to allocate": there["hami.io/acme-devices-to-allocate"],
            "locked": "acme.com/lock" in node,
        }


def simulated(folder: Path) -> dict[str, object]:
    """Two devices take four of five halves; the GPUs beside them take none."""
    path = folder / "list.yaml"
    path.write_text(LIST)
    workload = read_workload(path)
    found = arrivals.run(workload, as_listed(workload), "best-fit")
    return {"placed": found.placed, "failed": sum(found.failed.values())}


if __name__ == "__main__":
    print(json.dumps({"lab": asyncio.run(lab()), "simulator": simulated(Path(sys.argv[1]))}))
