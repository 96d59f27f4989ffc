"""The names of GPUs that kube-scheduler asks Purser about, in a lab: an administrator adds those of the device plugin's
files to the chart's values; a lab reads its files."""

import structlog

from purser.agent.sharing.configuration import config_names, config_text
from purser.agent.sharing.reading import read_plugin_file
from purser.core.device.resources import is_gpu_resource
from purser.core.sharing import SharingError
from purser.core.sharing.managed import named_resources
from purser.lab.settings import LabSettings

log = structlog.get_logger("purser.lab")


def managed_names(settings: LabSettings) -> tuple[str, ...]:
    """Those that are given, and those that the files name as they are when the lab starts; sorted. Blocks."""
    found = set(settings.managed_resources)
    folder = settings.device_plugin_configs
    try:
        for name in config_names(folder) if folder is not None else ():
            if folder is not None and (folder / name).is_file():
                found |= _names_in_config(config_text(folder / name))
    except SharingError as error:  # the agents say so as well
        log.warning("Cannot read the device plugin's configuration files", error=str(error))
    return tuple(sorted(found))


def _names_in_config(text: str) -> frozenset[str]:
    """Of a file that cannot be read nothing: agents go by none of it."""
    try:
        return frozenset(filter(is_gpu_resource, named_resources(read_plugin_file(text).file)))
    except SharingError:
        return frozenset()
