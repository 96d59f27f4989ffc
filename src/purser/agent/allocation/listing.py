"""How this node names devices to its runtime, out of the device plugin's settings; and which device files it has."""

from collections.abc import Collection, Iterable

from purser.agent.allocation.answers import DeviceListing
from purser.agent.cdi.names import NON_GPU_CLASSES
from purser.agent.inventory.building import device_indexes
from purser.agent.inventory.device_files import IMEX_CHANNEL
from purser.agent.nvml.driver import Gpu
from purser.agent.sharing.device_lists import DeviceList
from purser.core.sharing import PluginSettings


def listing_of(
    settings: PluginSettings, gpus: Iterable[Gpu], device_files: Collection[str], cdi_classes: Collection[str] = ()
) -> DeviceListing:
    """``device_files``: names in /dev; ``cdi_classes``: those of which there is a CDI specification."""
    wanted = tuple(each for each in NON_GPU_CLASSES if getattr(settings, each))
    return DeviceListing(
        ways=frozenset(map(DeviceList, settings.device_lists)),
        indexes=device_indexes(gpus) if settings.device_ids == "index" else {},
        annotation_prefix=settings.cdi_annotation_prefix,
        extra_cdi_classes=tuple(each for each in wanted if each in cdi_classes),
        variables={f"NVIDIA_{each.upper()}": "enabled" for each in wanted},
        imex_channels=tuple(
            each for each in settings.imex_channels if settings.imex_required or f"{IMEX_CHANNEL}{each}" in device_files
        ),
    )
