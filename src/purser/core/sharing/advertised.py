"""The kubelet resources that a node's GPUs become by the file: which devices, as how many replicas, with which ids.

The rules are those of k8s-device-plugin's internal/rm. What its releases read and then set aside with a warning
(``resources``, ``rename`` and ``devices`` of a replicated resource), Purser does, by the same rules:
`upstream_differences` says where a file has that. Two things are stricter: no device is replicated by two entries,
where upstream hands it out twice; and MIG devices stand in the order of their indexes, where upstream takes any. Names
that are not recognised as a GPU's (`purser.core.device.resources`) are ignored, as upstream does with all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from purser.core.device.gpus import NodeGpu, NodeMigDevice
from purser.core.device.resources import is_gpu_resource, mig_resource
from purser.core.sharing.file import (
    FILE,
    PREFIX,
    DiscoveryFlags,
    Flags,
    NamedResource,
    PluginFile,
    Replicas,
    ReplicatedResource,
    Sharing,
    SharingError,
)
from purser.core.sharing.words import MigStrategy, SharingStrategy

MPS_CLIENTS, MPS_CLIENTS_SINCE_CUDA_13_1 = 48, 60
"""Of one MPS server, from compute capability 7.0 on (NVIDIA's MPS documentation)."""
MPS_CLIENTS_BEFORE_VOLTA = 16
MAX_MISSING_SHOWN = 16
"""Devices that a sentence names."""

VOLTA = (7, 0)
"""NVIDIA's plugin takes 7.5 for it, and gives a V100 16 clients."""


class AdvertisedDevice(msgspec.Struct, frozen=True):
    """A device as kubelet is to hear of it."""

    resource: str
    uuid: str
    index: str
    """As the file writes it: ``0``, of a MIG device ``0:1``."""
    memory_mib: int
    parent: str = ""
    """uuid of the GPU, of a MIG device."""
    sharing: SharingStrategy = SharingStrategy.NONE
    replicas: int = 1
    compute_capability: tuple[int, int] | None = None
    mig_kind: str = ""
    """Of a GPU that is cut on demand: see `purser.core.model.Device.mig_kind`."""


def active(sharing: Sharing) -> tuple[SharingStrategy, Replicas | None]:
    """The way of sharing that counts, and what it says."""
    if sharing.mps is not None:
        return SharingStrategy.MPS, sharing.mps
    return (SharingStrategy.TIME_SLICING if sharing.time_slicing else SharingStrategy.NONE), sharing.time_slicing


def refuses_second_replica(sharing: Sharing) -> bool:
    """Whether a container gets no second replica, which is no more of the GPU: ``failRequestsGreaterThanOne``, which
    holds by default with MPS, and does not with time-slicing."""
    strategy, replicas = active(sharing)
    is_refused = replicas.fail_requests_greater_than_one if replicas else None
    return is_refused if is_refused is not None else strategy is SharingStrategy.MPS


def advertised_devices(
    gpus: Iterable[NodeGpu], file: PluginFile, strategy: MigStrategy, problems: list[str] | None = None
) -> tuple[AdvertisedDevice, ...]:
    """All devices of a node, GPUs by index, each GPU's MIG devices by theirs.

    What the file says of devices that the node does not have, or that cannot be on one, costs nothing else: a sentence
    for each goes to ``problems``. Raises `SharingError` where the MIG strategy and these GPUs do not go together.
    """
    problems = [] if problems is None else problems
    found = _named(sorted(gpus, key=lambda gpu: gpu.index), file, strategy, problems)
    way, replicas = active(file.sharing)
    if replicas is None:
        return found
    replicated: dict[str, ReplicatedResource] = {}
    for entry in replicas.resources:
        where = f"{FILE}: sharing.{'mps' if way is SharingStrategy.MPS else 'timeSlicing'}.resources[{entry.place}]"
        there = [each for each in found if each.resource == entry.name and not each.mig_kind]
        for device in _chosen(entry, there, where, problems):
            trouble = _why_not_replicated(way, entry, device, replicated)
            if trouble:
                problems.append(f"{where} {trouble}")
            else:
                replicated[device.uuid] = entry
    return tuple(_replicate(each, way, replicas, replicated.get(each.uuid)) for each in found)


def _why_not_replicated(
    way: SharingStrategy, entry: ReplicatedResource, device: AdvertisedDevice, replicated: Mapping[str, object]
) -> str:
    """Why this device does not become replicas by this entry; empty: it does."""
    if device.uuid in replicated:
        return (
            f"replicates device {device.index}, which an earlier entry already replicates: list each device only once"
        )
    if way is not SharingStrategy.MPS:
        return ""
    if device.parent or device.mig_kind:
        return f"shares MIG device {device.index}, but MPS can share only whole GPUs: use sharing.timeSlicing"
    most = mps_clients(device.compute_capability)
    if entry.replicas > most:
        return (
            f"makes {entry.replicas} replicas, but MPS on GPU {device.index} supports only {most} clients: use at "
            f"most {most}. The GPU is not shared"
        )
    return ""


def _replicate(
    device: AdvertisedDevice, way: SharingStrategy, replicas: Replicas, entry: ReplicatedResource | None
) -> AdvertisedDevice:
    if entry is None:
        return device
    name = replicas.advertised_as(entry)
    if not is_gpu_resource(name):
        name = replicas.by_default(entry)
    return msgspec.structs.replace(device, resource=name, sharing=way, replicas=entry.replicas)


def upstream_differences(file: PluginFile) -> tuple[str, ...]:
    """What the file asks for that NVIDIA's plugin sets aside and Purser does, a sentence each: after a migration these
    resources have other names. And the names that Purser ignores as well."""
    _, replicas = active(file.sharing)
    entries = replicas.resources if replicas else ()
    keys = (
        ("resources", bool(file.resources.gpus or file.resources.mig)),
        ("rename", any(replicas and replicas.advertised_as(each) != replicas.by_default(each) for each in entries)),
        ("devices", any(each.devices != "all" for each in entries)),
    )
    effect = "takes effect here, although NVIDIA's device plugin ignores it"
    names = {rule.name for rule in (*file.resources.gpus, *file.resources.mig)} | {
        e.rename for e in entries if e.rename
    }
    odd = sorted(name for name in names if not is_gpu_resource(name))
    return (
        *(f"{FILE}: {key} {effect}" for key, is_there in keys if is_there),
        *(
            f"{FILE}: resource {name} is ignored: its name must be nvidia.com/gpu.NAME or nvidia.com/mig-NAME"
            for name in odd
        ),
    )


_WITHOUT_EFFECT: tuple[tuple[str, Callable[[Flags], bool], str], ...] = (
    ("failOnInitError", lambda flags: flags.fail_on_init_error is not None, "the agent waits for a driver"),
    ("mpsRoot", lambda flags: flags.mps_root is not None, "the sockets of MPS daemons are in /run/purser/mps"),
    (
        "useNodeFeatureAPI",
        lambda flags: flags.use_node_feature_api is not None,
        "the agent's option --feature-labels sets where labels are written",
    ),
    (
        "deviceDiscoveryStrategy",
        lambda flags: flags.device_discovery_strategy == "tegra",
        "GPUs are discovered only by NVML",
    ),
    (
        "plugin.containerDriverRoot",
        lambda flags: flags.plugin.container_driver_root is not None,
        "the agent's option --driver-root sets where the driver is",
    ),
    (
        "gfd",
        lambda flags: flags.gfd != DiscoveryFlags(),
        "the agent's options, such as --feature-file and --machine-type-file, configure feature labels",
    ),
)
"""Of ``flags``: what Purser does not go by, whether the file says it, and what counts instead."""


def settings_without_effect(file: PluginFile) -> tuple[str, ...]:
    """What the file says and Purser does not go by, a sentence each."""
    found = ((key, instead) for key, is_set, instead in _WITHOUT_EFFECT if is_set(file.flags))
    return tuple(f"{FILE}: flags.{key} has no effect: {instead}" for key, instead in found)


def _named(
    gpus: Sequence[NodeGpu], file: PluginFile, strategy: MigStrategy, problems: list[str]
) -> tuple[AdvertisedDevice, ...]:
    """Each device by its resource, none replicated."""
    odd = _partial_profiles(gpus) if strategy is MigStrategy.SINGLE else frozenset()
    if strategy is not MigStrategy.NONE:
        _check_mig(gpus, strategy, odd)
    found = []
    for gpu in gpus:
        if strategy is MigStrategy.NONE or not gpu.mig_enabled:
            resource = _first(file.resources.gpus, gpu.model) or f"{PREFIX}gpu"
            found.append(
                AdvertisedDevice(
                    resource, gpu.uuid, str(gpu.index), gpu.memory_mib, compute_capability=gpu.compute_capability
                )
            )
            continue
        if strategy is MigStrategy.ON_DEMAND and gpu.mig_kind:
            resource = f"{PREFIX}gpu"
            found.append(AdvertisedDevice(resource, gpu.uuid, str(gpu.index), gpu.memory_mib, mig_kind=gpu.mig_kind))
            continue
        for at, mig in enumerate(gpu.migs):
            resource = _first(file.resources.mig, mig.profile)
            if not resource and mig.profile not in odd:
                resource = _mig_resource(mig, strategy)
            if not resource:
                problems.append(_no_resource_sentence(mig, f"{gpu.index}:{at}"))
                continue
            found.append(AdvertisedDevice(resource, mig.uuid, f"{gpu.index}:{at}", mig.memory_mib, parent=gpu.uuid))
    return tuple(found)


def _no_resource_sentence(mig: NodeMigDevice, index: str) -> str:
    write = 'add an entry to resources.mig ({pattern: "' + mig.profile + '", name: nvidia.com/mig-NAME})'
    return (
        f"MIG device {index} is {mig.profile}, which is a part of a GPU instance; the device is ignored because no "
        f"resource matches this profile. Create a compute instance that fills the GPU instance, or {write}"
    )


def _partial_profiles(gpus: Iterable[NodeGpu]) -> frozenset[str]:
    """Profiles of parts of GPU instances, where there are whole ones that are all alike: these are what counts."""
    profiles = {mig.profile for gpu in gpus if gpu.mig_enabled for mig in gpu.migs}
    parts = frozenset(profile for profile in profiles if "c." in profile)
    return parts if len(profiles - parts) == 1 else frozenset()


def _check_mig(gpus: Sequence[NodeGpu], strategy: MigStrategy, odd: frozenset[str]) -> None:
    """``odd``: profiles that do not count. Raises `SharingError` with all that is wrong: whoever corrects one thing at
    a time sees no other each time.

    A GPU that cannot be cut, such as a T4 beside A100s, counts as one in which MIG is off: with ``single`` all devices
    of the node would have one name, and mean different things. k8s-device-plugin (``internal/rm/device_map.go``, at
    1b826acc) and GPU feature discovery (``internal/lm/mig-strategy.go``: product ``-MIG-INVALID``) refuse such a node
    as well. With ``mixed`` it is nvidia.com/gpu beside the MIG devices.
    """
    cut = [gpu for gpu in gpus if gpu.mig_enabled]
    if strategy is not MigStrategy.SINGLE or not cut:
        return
    causes = []
    if whole := [gpu for gpu in gpus if not gpu.mig_enabled and gpu.can_mig]:
        causes.append(f"MIG is enabled on {_gpus(cut)} and disabled on {_gpus(whole)}")
    if other := [gpu for gpu in gpus if not gpu.mig_enabled and not gpu.can_mig]:
        causes.append(
            f"MIG is enabled on {_gpus(cut)}, but {_gpus(other)} cannot be partitioned ({_models(other)}): use "
            "migStrategy: mixed on this node"
        )
    if empty := [gpu for gpu in cut if not gpu.migs]:
        causes.append(f"there are no MIG devices on {_gpus(empty)}")
    profiles = sorted({mig.profile for gpu in cut for mig in gpu.migs} - odd)
    if len(profiles) > 1:
        causes.append(f"MIG devices have different profiles: {', '.join(profiles)}")
    if causes:
        raise SharingError(f"migStrategy single cannot be used because {'; '.join(causes)}")


def _gpus(gpus: Sequence[NodeGpu]) -> str:
    """As ``GPU 0`` or ``GPUs 0, 3``."""
    return f"GPU{'s' * (len(gpus) > 1)} {', '.join(str(gpu.index) for gpu in gpus)}"


def _models(gpus: Iterable[NodeGpu]) -> str:
    return ", ".join(sorted({gpu.model for gpu in gpus}))


def _first(rules: Iterable[NamedResource], text: str) -> str:
    return next((rule.name for rule in rules if rule.matches(text) and is_gpu_resource(rule.name)), "")


def _mig_resource(mig: NodeMigDevice, strategy: MigStrategy) -> str:
    """Empty: none is for it."""
    if strategy is MigStrategy.SINGLE:
        return f"{PREFIX}gpu"
    return "" if "c." in mig.profile else mig_resource(mig.profile)


def _chosen(
    entry: ReplicatedResource, there: Sequence[AdvertisedDevice], where: str, problems: list[str]
) -> Iterable[AdvertisedDevice]:
    """Of the devices of its resource those that an entry replicates. None of the resource: none."""
    if not there or entry.devices == "all":
        return there
    if isinstance(entry.devices, int):
        if entry.devices > len(there):
            problems.append(
                f"{where} asks to replicate {entry.devices} {entry.name} devices, but the node has only "
                f"{len(there)}, so no more are replicated: use at most {len(there)}, or all"
            )
        return there[: entry.devices]
    by_name = {**{each.uuid: each for each in there}, **{each.index: each for each in there}}
    if missing := [ref for ref in dict.fromkeys(entry.refs) if ref not in by_name]:
        device = f"device{'s' * (len(missing) > 1)} {', '.join(missing[:MAX_MISSING_SHOWN])}"
        problems.append(
            f"{where} asks to replicate {device}, which the node does not have as {entry.name}: use indexes or UUIDs "
            f"of devices that the node has ({', '.join(each.index for each in there[:MAX_MISSING_SHOWN])})"
        )
    return {by_name[ref].uuid: by_name[ref] for ref in entry.refs if ref in by_name}.values()


def mps_clients(compute_capability: tuple[int, int] | None, cuda_version: tuple[int, int] = (0, 0)) -> int:
    """How many clients an MPS server has room for on such a GPU, with a driver of this CUDA; where it is not known, the
    fewest."""
    if compute_capability is None or compute_capability < VOLTA:
        return MPS_CLIENTS_BEFORE_VOLTA
    return MPS_CLIENTS if cuda_version < (13, 1) else MPS_CLIENTS_SINCE_CUDA_13_1
