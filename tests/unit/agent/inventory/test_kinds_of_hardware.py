"""What the agent makes of the hardware of each simulated node: devices, labels, and no fault."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.kube.servers import ManualClock

from purser.agent.features.collecting import collect_facts
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.host.latest import Latest
from purser.agent.settings import AgentSettings, DevicePluginFlags, SharingSettings
from purser.agent.sharing import SharingConfig, config_of
from purser.core.features import labels_of
from purser.core.health.machine import LASTING_S
from purser.core.model import NodeInventory
from purser.core.sharing import MigStrategy
from purser.lab.driver import DriverKind, SimulatedDriver, profiles
from purser.lab.driver.node_mig import create_mig, set_mig
from purser.lab.driver.parts import Fabric
from purser.lab.driver.profiles import NodeProfile


@cache
def config_with(**flags: Any) -> tuple[SharingSettings, SharingConfig]:
    """Read once: it takes longer than all that is done with a node here."""
    sharing = SharingSettings(flags=DevicePluginFlags(**flags))
    return sharing, config_of(sharing)


STATION = (0, 1, 2, 4)
"""The A100s of a DGX Station: 3 is its display card."""


class Node:
    """A monitor that looked once at a simulated node."""

    def __init__(
        self, folder: Path, profile: str | NodeProfile, prepare: Callable[[SimulatedDriver], object], **flags: Any
    ) -> None:
        self.simulated = SimulatedDriver.create(folder, "n", profile, kind=DriverKind.PYTHON)
        prepare(self.simulated)
        sharing, config = config_with(**flags)
        self.settings = AgentSettings(node_name="n", slots=2, sharing=sharing, sysfs_root=folder / "sys")
        self.news: list[str] = []
        self.clock = ManualClock()
        self.monitor = DeviceMonitor(
            self.settings,
            self.simulated.open(),
            on_news=lambda uuid, news: self.news.append(news.words),
            clock=self.clock,
            config=Latest[SharingConfig | None](config),
        )

    async def looked_at(self) -> "Node":
        await self.monitor.scan()
        await self.monitor.probe()
        return self

    async def probed_for(self, seconds: float) -> list[str]:
        """What was reported meanwhile."""
        await self.monitor.probe()
        self.clock.advance(seconds)
        self.news.clear()
        await self.monitor.probe()
        return self.news

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


def station(cards: str, name: str) -> NodeProfile:
    """As the DGX Station, with A100s (A) and cards for monitors of this name (d) in this order."""
    profile = profiles.load("dgx-station-a100")
    kinds = {"A": profile.gpus[0], "d": profile.gpus[3]}
    gpus = tuple(msgspec.structs.replace(kinds[each], pci=f"0000:{at + 1:02x}:00.0") for at, each in enumerate(cards))
    display = msgspec.structs.replace(profile.models["dgx-display"], name=name)
    return msgspec.structs.replace(profile, gpus=gpus, models={**profile.models, "dgx-display": display})


@pytest.mark.parametrize(
    ("cards", "name", "counted"),
    [
        ("dAA", "NVIDIA DGX Display", (1, 2)),
        ("AdAd", "DGX Display", (0, 2)),
        ("Ad", "DGX Display", (0,)),
        ("d", "NVIDIA DGX Display", ()),
        ("Ad", "NVIDIA T400 4GB", (0, 1)),
    ],
)
@pytest.mark.parametrize("strategy", [MigStrategy.NONE, MigStrategy.SINGLE])
async def test_cards_for_monitors_are_told_by_their_name_wherever_they_sit(
    tmp_path: Path, cards: str, name: str, counted: tuple[int, ...], strategy: MigStrategy
) -> None:
    is_partitioned = strategy is MigStrategy.SINGLE

    def prepare(node: SimulatedDriver) -> None:
        cut(node, *(at for at, each in enumerate(cards) if each == "A" and is_partitioned))

    node = await Node(tmp_path, station(cards, name), prepare, mig_strategy=strategy).looked_at()
    if is_partitioned and "NVIDIA T400 4GB" in name:
        assert "GPU 1 cannot be partitioned (NVIDIA T400 4GB)" in node.monitor.configured.mismatch
    else:
        each = 7 if is_partitioned else 1
        assert [index for _, index, _ in node.devices()] == [index for index in counted for _ in range(each)]


def cut(node: SimulatedDriver, *indexes: int) -> None:
    for index in indexes:
        set_mig(node.folder, index, enabled=True)
        for _ in range(7):
            create_mig(node.folder, index, "1g.10gb")


@pytest.mark.parametrize("strategy", [MigStrategy.SINGLE, MigStrategy.MIXED])
async def test_a_card_for_the_monitor_counts_in_no_mig_strategy(tmp_path: Path, strategy: MigStrategy) -> None:
    node = await Node(tmp_path, "dgx-station-a100", lambda node: cut(node, *STATION), mig_strategy=strategy).looked_at()
    resource = "gpu" if strategy is MigStrategy.SINGLE else "mig-1g.10gb"
    assert node.devices() == [(resource, index, 1) for index in STATION for _ in range(7)]
    assert node.monitor.configured.mismatch == ""


@pytest.mark.gate
@pytest.mark.parametrize(
    ("profile", "fabric", "why", "state"),
    [
        ("gb200-nvl4", Fabric(state=0), "the driver does not support an NVLink domain for this GPU", "not-supported"),
        ("gb200-nvl4", Fabric(state=1), "its registration has not started", "not-started"),
        ("gb200-nvl4", Fabric(state=2), "its registration is in progress", "in-progress"),
        ("gb200-nvl4", Fabric(status=999), "its registration failed (Unknown Error)", "failed"),
        ("gb200-nvl4", Fabric(), "it is registered without a cluster UUID", "completed"),
        ("h100-8", Fabric(state=2), "its registration is in progress", "in-progress"),
        ("h100-8", Fabric(), "", "completed"),
    ],
)
async def test_a_gpu_that_its_neighbours_nvlink_domain_lacks_is_degraded(
    tmp_path: Path, profile: str, fabric: Fabric, why: str, state: str
) -> None:
    node = await Node(tmp_path, profile, lambda simulated: simulated.set_fabric(2, fabric)).looked_at()
    assert await node.probed_for(LASTING_S - 1) == [], "after a boot they join one after another"
    told = await node.probed_for(1)
    assert len(told) == bool(why)
    assert all(
        f"is degraded: not in an NVLink domain, although other GPUs on the node are: {why}. Programs" in each
        for each in told
    )
    assert all(each.healthy for each in node.inventory().devices)
    registration = node.monitor.readings[node.simulated.uuids[2]].registration
    assert registration is not None
    assert registration.state == state
    if why:
        node.simulated.set_fabric(2, Fabric(status=3))
        await node.monitor.probe()
        assert "its registration failed (Not Supported)" in told[-1], "the event is renewed"


@pytest.mark.parametrize("other", ["in MIG mode", "of another model"])
async def test_a_gpu_of_another_kind_is_in_no_domain_of_its_neighbours(tmp_path: Path, other: str) -> None:
    def prepare(node: SimulatedDriver) -> None:
        set_mig(node.folder, 2, enabled=other == "in MIG mode")
        node.set_fabric(2, Fabric(state=2))

    profile = profiles.load("h100-8")
    if other == "of another model":
        gpus = list(profile.gpus)
        gpus[2] = msgspec.structs.replace(gpus[2], model="h200-sxm5-141gb")
        profile = msgspec.structs.replace(profile, gpus=tuple(gpus))
    node = await Node(tmp_path, profile, prepare, mig_strategy=MigStrategy.MIXED).looked_at()
    assert await node.probed_for(LASTING_S) == []


def whole(count: int, slots: int = 2) -> list[tuple[str, int, int]]:
    return [("gpu", index, slots) for index in range(count)]


def labelled(
    product: str, count: int, memory_mib: int | None, family: str, *, can_mig: bool = False
) -> dict[str, str | None]:
    return {
        "gpu.product": product,
        "gpu.count": str(count),
        "gpu.memory": None if memory_mib is None else str(memory_mib),
        "gpu.family": family,
        "mig.capable": str(can_mig).lower(),
    }


@pytest.mark.parametrize(
    ("profile", "devices", "labels"),
    [
        ("dgx-spark", whole(1, slots=1), labelled("NVIDIA-GB10", 1, None, "blackwell")),
        ("jetson-thor", whole(1, slots=1), labelled("NVIDIA-Thor", 1, None, "undefined")),
        ("wsl", whole(1), labelled("NVIDIA-GeForce-RTX-4090", 1, 24564, "ada-lovelace")),
        ("gb200-nvl4", whole(4), labelled("NVIDIA-GB200", 4, 189471, "blackwell", can_mig=True)),
        ("gb200-189gb-4", whole(4), labelled("NVIDIA-GB200", 4, 193208, "blackwell", can_mig=True)),
        ("gh200-144gb", whole(1), labelled("NVIDIA-GH200-144G-HBM3e", 1, 147212, "hopper", can_mig=True)),
        (
            "rtx-pro-6000-8",
            whole(8),
            labelled("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 8, 97887, "blackwell", can_mig=True),
        ),
    ],
)
async def test_what_hardware_lacks_is_no_fault(
    tmp_path: Path, profile: str, devices: list[tuple[str, int, int]], labels: dict[str, str | None]
) -> None:
    node = await Node(tmp_path, profile, lambda _: None).looked_at()
    assert node.devices() == devices
    assert {key: node.labels().get(key) for key in labels} == labels
    assert await node.probed_for(LASTING_S) == []
    assert (node.monitor.condition.value, node.monitor.trouble) == (None, "")
