"""How GPUs are shared by the word of NVIDIA's device plugin: its configuration file, and what a node's GPUs become by
it. Pure.

`plugin_file` reads the file (`file`), `chosen_config` says which of several a node goes by (`chosen`),
`plugin_settings` what holds of options, variables and file (`settings`), and `advertised_devices` which kubelet
resources come of it, with how many replicas (`advertised_devices`).

Not here: reading texts and folders, MPS daemons, and who gets which replica, which is decided as for any share.
"""

from purser.core.sharing.advertised import (
    AdvertisedDevice,
    active,
    advertised_devices,
    mps_clients,
    refuses_second_replica,
    settings_without_effect,
    upstream_differences,
)
from purser.core.sharing.chosen import CONFIG_LABEL, ConfigFallback, chosen_config
from purser.core.sharing.file import PluginFile, ReadFile, SetAside, SharingError, plugin_file
from purser.core.sharing.settings import (
    PLUGIN_VARIABLES,
    PluginSettings,
    plugin_settings,
    usable_file,
    with_last_flags,
)
from purser.core.sharing.words import MigStrategy, SharingStrategy

__all__ = [
    "CONFIG_LABEL",
    "PLUGIN_VARIABLES",
    "AdvertisedDevice",
    "ConfigFallback",
    "MigStrategy",
    "PluginFile",
    "PluginSettings",
    "ReadFile",
    "SetAside",
    "SharingError",
    "SharingStrategy",
    "active",
    "advertised_devices",
    "chosen_config",
    "mps_clients",
    "plugin_file",
    "plugin_settings",
    "refuses_second_replica",
    "settings_without_effect",
    "upstream_differences",
    "usable_file",
    "with_last_flags",
]
