"""What the agent makes of the hardware of each simulated node: devices, labels, and no fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from purser.agent.features.collecting import collect_facts
from purser.agent.health import DeviceMonitor
from purser.agent.latest import Latest
from purser.agent.settings import AgentSettings, DevicePluginFlags, SharingSettings
from purser.agent.sharing import SharingConfig, config_of
from purser.core.features import labels_of
from purser.core.model import NodeInventory
from purser.core.sharing import MigStrategy
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.node_mig import create_mig, set_mig

STATION = (0, 1, 2, 4)
"""The A100s of a DGX Station: 3 is its display card."""


class Node:
    """A monitor that looked once at a simulated node."""

    def __init__(self, folder: Path, profile: str, prepare: Callable[[SimulatedDriver], object], **flags: Any) -> None:
        self.simulated = SimulatedDriver.create(folder, "n", profile, kind=DriverKind.PYTHON)
        prepare(self.simulated)
        self.settings = AgentSettings(
            node_name="n", slots=2, sharing=SharingSettings(flags=DevicePluginFlags(**flags)), sysfs_root=folder / "sys"
        )
        self.news: list[str] = []
        self.monitor = DeviceMonitor(
            self.settings,
            self.simulated.open(),
            on_news=lambda uuid, news: self.news.append(news.words),
            config=Latest[SharingConfig | None](config_of(self.settings.sharing)),
        )

    async def looked_at(self) -> "Node":
        await self.monitor.scan()
        await self.monitor.probe()
        return self

    def inventory(self) -> NodeInventory:
        inventory = self.monitor.inventory.value
        assert inventory is not None
        return inventory

    def devices(self) -> list[tuple[str, int, int]]:
        """Resource, index of the GPU, and slots of each."""
        inventory = self.inventory()
        assert [each.unhealthy_reason for each in inventory.devices if not each.healthy] == []
        return [(each.resource.removeprefix("nvidia.com/"), each.index, each.slots) for each in inventory.devices]

    def labels(self) -> dict[str, str]:
        """Those that depend on the GPUs."""
        basis = self.monitor.configured.basis.value
        assert basis is not None
        facts = collect_facts(basis.gpus, basis.info, self.settings.sysfs_root, None, None)
        labels, troubles = labels_of(facts)
        assert troubles == ()
        return {key.removeprefix("nvidia.com/"): value for key, value in labels.items()}


async def test_a_card_for_the_monitor_is_no_gpu(tmp_path: Path) -> None:
    """Nor does NVIDIA's stack count it: see `purser.core.device.counting`."""
    node = await Node(tmp_path, "dgx-station-a100", lambda _: None).looked_at()
    assert node.devices() == [("gpu", index, 2) for index in STATION]
    labels = node.labels()
    assert (labels["gpu.count"], labels["gpu.product"]) == ("4", "NVIDIA-A100-SXM4-80GB")
    assert [key for key in labels if "isplay" in key] == []
    known = {gpu.uuid for gpu in node.monitor.gpus}
    assert {link.peer for gpu in node.monitor.gpus for link in gpu.links} == known


def cut(node: SimulatedDriver) -> None:
    for index in STATION:
        set_mig(node.folder, index, enabled=True)
        for _ in range(7):
            create_mig(node.folder, index, "1g.10gb")


@pytest.mark.parametrize("strategy", [MigStrategy.SINGLE, MigStrategy.MIXED])
async def test_a_card_for_the_monitor_counts_in_no_mig_strategy(tmp_path: Path, strategy: MigStrategy) -> None:
    node = await Node(tmp_path, "dgx-station-a100", cut, mig_strategy=strategy).looked_at()
    resource = "gpu" if strategy is MigStrategy.SINGLE else "mig-1g.10gb"
    assert node.devices() == [(resource, index, 1) for index in STATION for _ in range(7)]
    assert node.monitor.configured.misfit == ""
