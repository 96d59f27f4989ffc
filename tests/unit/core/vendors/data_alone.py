"""From pod to grant for a family that is only in the data file of the package that this imports: see
test_by_data_alone.py. In a whole lab, then in the simulator."""

import asyncio
import json
import sys
from pathlib import Path

from tests.unit.simulator.builders import as_listed

from purser.core.grant.signing import read
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, chosen_nodes
from purser.simulator import arrivals
from purser.simulator.yamlfile import read_workload

ACME, ACME_MEM = "acme.com/npu", "acme.com/npu-memory"
SHARE = {ACME: "1", ACME_MEM: "3"}
LIST = """
nodes: [{name: nvidia, gpus: 2, model: T4}, {name: acme, gpus: 2, family: Acme NPU}]
pods: [{name: p, count: 5, gpus: 1, gpu_milli: 500, family: Acme NPU}]
"""


async def lab() -> dict[str, object]:
    """The whole of it: API server, webhooks, scheduler, and kubelet and the vendor's plugin on a hollow node."""
    nodes, hollow = chosen_nodes(["acme-npu"])
    async with Lab(LabSettings(nodes, hollow=hollow)) as lab, asyncio.timeout(60):
        await lab.ready()
        main = {"name": "main", "image": "busybox", "resources": {"limits": SHARE}}
        await lab.client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [main]}}, "default")
        while (pod := await lab.client.get(PODS, "p", "default")).status.phase != "Running":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        annotations = pod.metadata.annotations
        grant = read(annotations)
        node = await lab.client.get(NODES, pod.spec.node_name)
        assert grant is not None
        return {
            "scheduler": pod.spec.scheduler_name,
            "shares": [[share.uuid, share.memory_mib, share.family] for share in grant.containers[0].shares],
            "phase": annotations["hami.io/bind-phase"],
            "allocated": annotations["hami.io/acme-devices-allocated"],
            "to allocate": annotations["hami.io/acme-devices-to-allocate"],
            "locked": "acme.com/lock" in node.metadata.annotations,
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
