"""The configuration that NVIDIA's device plugin and feature discovery share: chosen per node from a ConfigMap.

A container beside theirs follows the node's label ``nvidia.com/device-plugin.config`` and tells them to read anew.
"""

from collections.abc import Sequence

import msgspec

from purser.operator.manifests.parts import NODE_NAME, ContainerTemplate, MountedVolume, Raw, config_map, container
from purser.operator.policy.fields import DEFAULTS, Image, reference
from purser.operator.policy.spec import ClusterPolicySpec

_CHOSEN = MountedVolume(name="config", at="/config", source={"emptyDir": {}})


class PluginConfigMount(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod has for its configuration; all empty without a ConfigMap."""

    env: dict[str, str | Raw] = {}
    """Of the main container."""
    mounts: Sequence[MountedVolume] = ()
    """Of the main container."""
    init: Sequence[ContainerTemplate] = ()
    beside: Sequence[ContainerTemplate] = ()
    pod: Raw = {}


def configured(spec: ClusterPolicySpec, process: str) -> PluginConfigMount:
    """``process`` is what is told of changes, by its name."""
    config = spec.device_plugin.config
    if not config.name:
        return PluginConfigMount()
    mounts = (_CHOSEN, config_map("available-configs", config.name, "/available-configs"))
    return PluginConfigMount(
        env={"CONFIG_FILE": "/config/config.yaml"},
        mounts=mounts,
        init=(_manager(spec, "config-manager-init", mounts, {"ONESHOT": "true", "SEND_SIGNAL": "false"}),),
        beside=(
            _manager(
                spec,
                "config-manager",
                mounts,
                {"ONESHOT": "false", "SEND_SIGNAL": "true", "SIGNAL": "1", "PROCESS_TO_SIGNAL": process},
            ),
        ),
        pod={"shareProcessNamespace": True},
    )


def _manager(
    spec: ClusterPolicySpec, name: str, mounts: Sequence[MountedVolume], env: dict[str, str | Raw]
) -> ContainerTemplate:
    section = spec.device_plugin
    plugin = section if section.flavor == "nvidia" else spec.gfd
    return container(
        name,
        reference(DEFAULTS["device-plugin"], plugin),
        Image(image_pull_policy=plugin.image_pull_policy, image_pull_secrets=plugin.image_pull_secrets),
        command=["config-manager"],
        env={
            "NODE_NAME": NODE_NAME,
            "NODE_LABEL": "nvidia.com/device-plugin.config",
            "CONFIG_FILE_SRCDIR": "/available-configs",
            "CONFIG_FILE_DST": "/config/config.yaml",
            "DEFAULT_CONFIG": section.config.default,
            "FALLBACK_STRATEGIES": "empty",
            **env,
        },
        mounts=mounts,
        privileged=True,
    )
