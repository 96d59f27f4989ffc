"""How GPUs are shared by the word of NVIDIA's device plugin: its configuration file, and what a node's GPUs become by
it. Pure.

`plugin_file` reads the file (`file`), `chosen_config` says which of several a node goes by (`chosen`),
`plugin_settings` what holds of options, variables and file (`settings`), and `advertised` which kubelet resources come
of it, with how many replicas (`advertised`).

Not here: reading texts and folders, MPS daemons, and who gets which replica, which is decided as for any share. No
part goes by the file yet: of all this only the words of strategies and `mig_resource` are in use, for labels.
"""

from purser.core.sharing.advertised import (
    AdvertisedDevice,
    NodeGpu,
    NodeMigDevice,
    active,
    advertised,
    asks_for_too_many,
    beyond_upstream,
    mps_clients,
)
from purser.core.sharing.chosen import CONFIG_LABEL, ConfigFallback, chosen_config
from purser.core.sharing.file import PluginFile, SharingError, plugin_file
from purser.core.sharing.settings import (
    FeatureDiscoverySettings,
    PluginSettings,
    discovery_settings,
    plugin_settings,
)
from purser.core.sharing.words import MigStrategy, SharingStrategy

__all__ = [
    "CONFIG_LABEL",
    "AdvertisedDevice",
    "ConfigFallback",
    "FeatureDiscoverySettings",
    "MigStrategy",
    "NodeGpu",
    "NodeMigDevice",
    "PluginFile",
    "PluginSettings",
    "SharingError",
    "SharingStrategy",
    "active",
    "advertised",
    "asks_for_too_many",
    "beyond_upstream",
    "chosen_config",
    "discovery_settings",
    "mps_clients",
    "plugin_file",
    "plugin_settings",
]
