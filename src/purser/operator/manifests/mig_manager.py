"""The MIG manager: the layouts that Purser brings along, in the form of NVIDIA's mig-parted, and its DaemonSet.

One layout per profile, ``all-1g.10gb``, fills every GPU with it; ``all-balanced`` mixes sizes; ``all-disabled`` turns
MIG off and ``all-enabled`` turns it on with nothing in it."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from purser.core.mig.families import FAMILIES, MigFamily
from purser.operator.manifests.agent import driver_arguments
from purser.operator.manifests.mounts import HOST
from purser.operator.manifests.parts import (
    NODE_NAME,
    PodTemplate,
    config_map,
    container,
    daemon_set,
    host_network,
    host_path,
    owned,
)
from purser.operator.model import RenderedManifest, RenderInputs
from purser.operator.order import Operand
from purser.operator.policy.fields import reference, split

MigConfigEntry = dict[str, Any]


def layouts() -> dict[str, list[MigConfigEntry]]:
    """By name: entries of mig-parted's ``mig-configs``."""
    found: dict[str, list[MigConfigEntry]] = {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [_entry({})],
        "all-balanced": [_entry(family.balanced, family) for family in FAMILIES],
    }
    for profile in sorted({profile for family in FAMILIES for profile in family.profiles}):
        found[f"all-{profile.replace('+', '.')}"] = list(_full_layouts(profile))
    return found


def _full_layouts(profile: str) -> Iterator[MigConfigEntry]:
    """One entry per number that fills a GPU. Each names the GPUs that know the profile: on any other it is invalid,
    which is found before any pod has to leave."""
    having: dict[int, list[MigFamily]] = {}
    for family in FAMILIES:
        if profile in family.profiles:
            having.setdefault(family.profiles[profile], []).append(family)
    for count, families in having.items():
        yield _entry({profile: count}, *families)


def _entry(devices: dict[str, int], *families: MigFamily) -> MigConfigEntry:
    """For GPUs of these families; none: for any GPU."""
    device_ids = [f"0x{device.upper()}10DE" for family in families for device in family.devices]
    only = {"device-filter": device_ids} if families else {}
    return {**only, "devices": "all", "mig-enabled": True, "mig-devices": dict(devices)}


@cache
def default_layouts() -> str:
    """As a file. Its text is in a manifest: another dumper of it must not make another one."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump({"version": "v1", "mig-configs": layouts()}, Dumper=dumper, sort_keys=False)
    return text


# --- the DaemonSet


ACCOUNT = "purser-mig-manager"
LAYOUTS = "purser-mig-layouts"
"""The ConfigMap with Purser's own layouts."""
LAYOUTS_FILE = "config.yaml"
"""Its key, and that of a ConfigMap that the policy names."""
LAYOUTS_VOLUME = "layouts"
"""The volume of the DaemonSet's pods that has it."""
_FOLDER = "/etc/purser/mig"


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """The DaemonSet, and the ConfigMap where the policy names none."""
    spec = wanted.policy.spec
    own = [] if spec.mig_manager.config.name else [_layouts(wanted)]
    return [*own, daemon_set(wanted, Operand.MIG_MANAGER, f"purser-{Operand.MIG_MANAGER}", _pod(wanted))]


def _layouts(wanted: RenderInputs) -> RenderedManifest:
    metadata = {"name": LAYOUTS, "namespace": wanted.namespace}
    data = {LAYOUTS_FILE: default_layouts()}
    return owned(
        wanted, Operand.MIG_MANAGER, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    )


def _pod(wanted: RenderInputs) -> PodTemplate:
    spec = wanted.policy.spec
    section = spec.mig_manager
    main = container(
        "mig-worker",
        reference(split(wanted.purser_image), section),
        section,
        args=[
            "mig-worker",
            "--node-name=$(NODE_NAME)",
            f"--host-root={HOST}",
            *driver_arguments(spec),
            f"--toolkit-dir={spec.toolkit.install_dir}/toolkit",
            f"--config={_FOLDER}/{LAYOUTS_FILE}",
        ],
        env={"NODE_NAME": NODE_NAME, "NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=[
            host_path("host", spec.host_paths.root_fs, HOST, type="Directory", propagation="HostToContainer"),
            config_map(LAYOUTS_VOLUME, section.config.name or LAYOUTS, _FOLDER),
        ],
        privileged=True,
    )
    return PodTemplate(
        account=ACCOUNT,
        containers=[main],
        other_fields={"hostPID": True, **host_network(section)},
        labels={"app": "nvidia-mig-manager"},
    )
