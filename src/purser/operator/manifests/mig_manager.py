"""The MIG manager: the layouts that Purser brings along, in the form of NVIDIA's mig-parted, and its DaemonSet.

One layout per profile, ``all-1g.10gb``, fills every GPU with it; ``all-balanced`` mixes sizes; ``all-disabled`` turns
MIG off and ``all-enabled`` turns it on with nothing in it."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import yaml

from purser.core.device.pci import MIG_FAMILIES
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
from purser.operator.model import Rendered, RenderInputs
from purser.operator.order import Operand
from purser.operator.policy.fields import reference, split


class Family(msgspec.Struct, frozen=True):
    """How GPUs of a family are cut."""

    name: str
    """In `MIG_FAMILIES`."""
    profiles: dict[str, int]
    """How many of each profile fill a GPU."""
    balanced: dict[str, int]

    @property
    def devices(self) -> tuple[str, ...]:
        """PCI device ids of its GPUs, four hexadecimal digits."""
        return MIG_FAMILIES[self.name]


FAMILIES = (
    Family(
        "A100, A800: 40 GB",
        {"1g.5gb": 7, "1g.5gb+me": 1, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1},
        {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
    ),
    Family(
        "A100, A800, H100, H800: 80 GB",
        {"1g.10gb": 7, "1g.10gb+me": 1, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1},
        {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    ),
    Family(
        "A30",
        {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1},
        {"1g.6gb": 2, "2g.12gb": 1},
    ),
    Family(
        "H100, H800: 94 GB",
        {"1g.12gb": 7, "1g.12gb+me": 1, "1g.24gb": 4, "2g.24gb": 3, "3g.47gb": 2, "4g.47gb": 1, "7g.94gb": 1},
        {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
    ),
    Family(
        "A100, H100, GH200, H20: 96 GB",
        {"1g.12gb": 7, "1g.12gb+me": 1, "1g.24gb": 4, "2g.24gb": 3, "3g.48gb": 2, "4g.48gb": 1, "7g.96gb": 1},
        {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
    ),
    Family(
        "H200, H20: 141 GB",
        {"1g.18gb": 7, "1g.18gb+me": 1, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
        {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
    ),
    Family(
        "GH200: 144 GB",
        {"1g.18gb": 7, "1g.18gb+me": 1, "1g.36gb": 4, "2g.36gb": 3, "3g.72gb": 2, "4g.72gb": 1, "7g.144gb": 1},
        {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
    ),
    Family(
        "B200",
        {"1g.23gb": 7, "1g.23gb+me": 1, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1},
        {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
    ),
    Family(
        "GB200",
        {"1g.24gb": 7, "1g.47gb": 4, "2g.47gb": 3, "3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1},
        {"1g.24gb": 2, "2g.47gb": 1, "3g.95gb": 1},
    ),
    Family(
        "GB200",  # with 186 GB, as newer drivers have it
        {"1g.23gb": 7, "1g.23gb+me": 1, "1g.47gb": 4, "2g.47gb": 3, "3g.93gb": 2, "4g.93gb": 1, "7g.186gb": 1},
        {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
    ),
    Family(
        "RTX PRO 6000 Blackwell",
        {
            "1g.24gb": 4,
            "1g.24gb+gfx": 4,
            "1g.24gb-me": 4,
            "1g.24gb+me.all": 1,
            "2g.48gb": 2,
            "2g.48gb+gfx": 2,
            "2g.48gb-me": 2,
            "2g.48gb+me.all": 1,
            "4g.96gb": 1,
            "4g.96gb+gfx": 1,
        },
        {"1g.24gb": 2, "2g.48gb": 1},
    ),
)
"""Not of all that can MIG: names of profiles end with memory sizes that are not known for all. A family may be there
twice, with other sizes: the MIG manager takes the entry whose profiles the GPU's driver offers."""

Entry = dict[str, Any]


def layouts() -> dict[str, list[Entry]]:
    """By name: entries of mig-parted's ``mig-configs``."""
    found: dict[str, list[Entry]] = {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [_entry({})],
        "all-balanced": [_entry(family.balanced, family) for family in FAMILIES],
    }
    for profile in sorted({profile for family in FAMILIES for profile in family.profiles}):
        found[f"all-{profile.replace('+', '.')}"] = list(_filled_with(profile))
    return found


def _filled_with(profile: str) -> Iterator[Entry]:
    """One entry per number that fills a GPU. Each names the GPUs that know the profile: on any other it is invalid,
    which is found before any pod has to leave."""
    having: dict[int, list[Family]] = {}
    for family in FAMILIES:
        if profile in family.profiles:
            having.setdefault(family.profiles[profile], []).append(family)
    for count, families in having.items():
        yield _entry({profile: count}, *families)


def _entry(devices: dict[str, int], *families: Family) -> Entry:
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
_FOLDER = "/etc/purser/mig"


def render(wanted: RenderInputs) -> list[Rendered]:
    """The DaemonSet, and the ConfigMap where the policy names none."""
    spec = wanted.policy.spec
    own = [] if spec.mig_manager.config.name else [_layouts(wanted)]
    return [*own, daemon_set(wanted, Operand.MIG_MANAGER, f"purser-{Operand.MIG_MANAGER}", _pod(wanted))]


def _layouts(wanted: RenderInputs) -> Rendered:
    metadata = {"name": LAYOUTS, "namespace": wanted.namespace}
    data = {"config.yaml": default_layouts()}
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
            f"--config={_FOLDER}/config.yaml",
        ],
        env={"NODE_NAME": NODE_NAME, "NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=[
            host_path("host", spec.host_paths.root_fs, HOST, type="Directory", propagation="HostToContainer"),
            config_map("layouts", section.config.name or LAYOUTS, _FOLDER),
        ],
        privileged=True,
    )
    return PodTemplate(
        account=ACCOUNT,
        containers=[main],
        more={"hostPID": True, **host_network(section)},
        labels={"app": "nvidia-mig-manager"},
    )
