"""How this node names devices to its runtime, out of the device plugin's settings; and which device files it has."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from purser.agent.allocation import DeviceList, DeviceListing, DeviceNodes
from purser.agent.files import read_start
from purser.agent.inventory import device_indexes
from purser.agent.nvml.driver import Gpu
from purser.core.sharing import PluginSettings

MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
"""On the host: which device file stands for which capability of MIG."""

_MAX_BYTES = 1 << 20

MORE_CLASSES = ("gdrcopy", "gds", "mofed")
"""Of devices that are no GPUs; their settings have these names."""


def listing_of(settings: PluginSettings, gpus: Iterable[Gpu], cdi_classes: Collection[str] = ()) -> DeviceListing:
    """``cdi_classes``: those of which there is a CDI specification."""
    wanted = tuple(each for each in MORE_CLASSES if getattr(settings, each))
    return DeviceListing(
        ways=frozenset(map(DeviceList, settings.device_lists)),
        indexes=device_indexes(gpus) if settings.device_ids == "index" else {},
        annotation_prefix=settings.cdi_annotation_prefix,
        more=tuple(each for each in wanted if each in cdi_classes),
        variables={f"NVIDIA_{each.upper()}": "enabled" for each in wanted},
        imex_channels=settings.imex_channels,
    )


def find_nodes(dev: Path, gpus: Iterable[Gpu], minors: str, root: str) -> DeviceNodes:
    """The device files below a folder ``dev``. Blocks. ``minors``: text of `MIG_MINORS`; ``root``: where it is on the
    host."""
    there = {f"{each.relative_to(dev)}" for each in _files(dev)}
    caps = mig_capabilities(minors)
    own: dict[str, tuple[str, ...]] = {}
    for gpu in gpus:
        if gpu.minor is None or not gpu.uuid:
            continue
        own[gpu.uuid] = (f"nvidia{gpu.minor}",)
        for mig in gpu.migs:
            instance = f"gpu{gpu.minor}/gi{mig.gpu_instance}"
            ways = (f"{instance}/access", f"{instance}/ci{mig.compute_instance}/access")
            own[mig.uuid] = (f"nvidia{gpu.minor}", *(caps[way] for way in ways if way in caps))
    return DeviceNodes(frozenset(there), own, root.rstrip("/"))


def mig_capabilities(text: str) -> dict[str, str]:
    """By capability, such as ``gpu0/gi1/access``, the name of its device file in /dev."""
    lines = (line.split() for line in text.splitlines())
    return {each[0]: f"nvidia-caps/nvidia-cap{each[1]}" for each in lines if len(each) == 2 and each[1].isdecimal()}


def read_mig_minors(path: Path) -> str:
    """Empty where the driver knows no MIG."""
    try:
        return read_start(path, _MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _files(dev: Path) -> Iterator[Path]:
    for pattern in ("nvidia*", "nvidia-caps/*", "nvidia-caps-imex-channels/*"):
        yield from dev.glob(pattern)
