"""What must hold at every moment, by what containers really got, and at the end."""

import asyncio
from collections import Counter
from pathlib import Path

from purser.adapters.nodes import inventory_of
from purser.core.grant.signing import GrantError
from purser.core.ledger import Ledger
from purser.kube.errors import KubeError
from purser.kube.resources import NODES
from purser.lab.cluster import Lab
from tests.scenarios.actions import RAW_PODS, eventually, grant_of, is_running
from tests.scenarios.cluster import Cluster
from tests.scenarios.pods import GPU

_STATUS = Path("/proc/self/status")


class Witness:
    """Samples kubelet's books and this process's memory."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.samples = 0
        self.given_twice: list[str] = []
        self.memory_mib: list[int] = []

    async def run(self, every_s: float) -> None:
        """Sample until cancelled."""
        while True:
            for name, node in self._lab.nodes.items():
                try:
                    held = await node.pod_resources()
                except Exception as error:  # kubelet is being restarted: there is nobody to ask
                    self.last_error = repr(error)
                    continue
                ids = Counter(id_ for of_container in held.values() for of in of_container.values() for id_ in of)
                self.given_twice += [f"{name}: {id_} given {count} times" for id_, count in ids.items() if count > 1]
            await self._check_shares()
            self.samples += 1
            if self.samples % 60 == 1:
                self.memory_mib.append(resident_mib())
            await asyncio.sleep(every_s)

    async def _check_shares(self) -> None:
        """No card is overcommitted by the containers that run, whatever anybody's book says of them."""
        try:
            nodes, pods = (await self._lab.client.list(NODES)).items, (await self._lab.client.list(RAW_PODS)).items
        except KubeError:
            return
        ledger = Ledger()
        for node in nodes:
            if node.metadata.name in self._lab.nodes and (inventory := inventory_of(node)) is not None:
                ledger.set_inventory(inventory)
        for one in pods:
            node = self._lab.nodes.get(one["spec"].get("nodeName", ""))
            if node is None or not is_running(one):
                continue
            try:
                grant = grant_of(one)
            except GrantError:  # its owner defaced it
                continue
            record = grant and node.container(one["metadata"]["uid"], grant.containers[0].container)
            if grant is not None and record is not None and "NVIDIA_VISIBLE_DEVICES" in record.env:
                ledger.adopt(grant)
        self.given_twice += [f"{each.uuid}: {each.problem}" for each in ledger.violations()]


async def all_cards_can_be_had(lab: Lab, cluster: Cluster) -> None:
    """Everything that was broken is mended: each node offers all of its slots."""
    wanted = {name: 10 * len(node.driver.uuids) for name, node in lab.nodes.items()}

    async def probe() -> bool:
        nodes = (await cluster.client.list(NODES)).items
        found = {one.metadata.name: int(one.status.allocatable.get(GPU, 0)) for one in nodes}
        assert wanted.items() <= found.items(), found
        return True

    await eventually(cluster, "every node offers all of its slots", probe)


def resident_mib() -> int:
    """Of this process: everything but the kernel."""
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))
