"""Resource vocabularies: from a pod's limits and annotations to a `PodRequest`, and from a `Grant` back to annotations.

Here: one module per vocabulary in which pods must run unchanged (``nvidia``, ``hami``, ``volcano``, ``volcano_vgpu``,
``gpushare``, ``kai``), one for all families of other vendors' devices (``vendor``), what they share (``quantities``,
``selectors``, ``policies``, ``enforcement``, ``records``, ``init_containers``, ``init_resources``), and the entry
points below. Not here: whether any node fits (``placement``), what is signed (``core.signing``), and what other
vendors' families are (``core.vendors``).

Every dialect of amounts of NVIDIA's GPUs asks kubelet for its devices as ``nvidia.com/gpu``: the webhook adds what
`default_limits` says, and a pod that has these limits parses to the same request as before. Their words are resources
of containers; those of ``kai`` are annotations of the pod that stand for resources in HAMi's words. NVIDIA's own also
asks for what else devices are listed under (`purser.core.device.resources`), such as ``nvidia.com/mig-1g.5gb``.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from purser.core.decoding import brief
from purser.core.device.resources import MIG_PREFIX, is_gpu_resource
from purser.core.dialects import gpushare, hami, kai, nvidia, volcano, volcano_vgpu
from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Dialect, Word, asks_for
from purser.core.dialects.enforcement import held, requires_enforcement, vendor_enforcement
from purser.core.dialects.errors import DialectError, Problems
from purser.core.dialects.init_containers import check_init_containers, check_shares_match
from purser.core.dialects.init_resources import restore_pod
from purser.core.dialects.policies import read_gpu_nic, read_gpu_policy, read_node_policy, read_weights
from purser.core.dialects.quantities import is_zero
from purser.core.dialects.selectors import Selectors, read_selectors
from purser.core.dialects.vendor import VendorDialect
from purser.core.grant.enforcement import spec_hold
from purser.core.kubelet.pod import KubeletPod, kubelet_pod
from purser.core.kubernetes.quantities import QuantityError, quantity_ceil
from purser.core.model import (
    ContainerGrant,
    ContainerRequest,
    Device,
    Grant,
    NodeInventory,
    PodRequest,
    SpecHold,
)
from purser.core.names import GPU_RESOURCE, INIT_RESOURCES_ANNOTATION
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.pod.requests import EffectiveRequests, pod_resources
from purser.core.pod.units import units_problem
from purser.core.vendors.catalogue import BY_RESOURCE, FAMILIES
from purser.core.vendors.family import DeviceFamily

__all__ = [
    "MAX_CONTAINERS",
    "RESOURCES",
    "SHARING",
    "VENDORS",
    "WORDS",
    "DialectError",
    "Word",
    "added_env",
    "asks_for_devices",
    "default_limits",
    "environment",
    "grant_annotations",
    "is_device_word",
    "is_gpu_word",
    "parse",
    "record_annotations",
    "restore_pod",
    "vendor_families",
    "vendor_records",
]

SHARING: Mapping[str, Dialect] = {
    "HAMi": hami,
    "Volcano": volcano,
    "Volcano vGPU": volcano_vgpu,
    "gpushare": gpushare,
    "KAI": kai,
}
"""By the system whose words they are, for NVIDIA's GPUs."""

VENDORS: Mapping[str, VendorDialect] = {family.name: VendorDialect(family) for family in FAMILIES}
"""By family, for other vendors' devices."""

_VENDOR_BY_RESOURCE = {resource: dialect for dialect in VENDORS.values() for resource in dialect.WORDS}
_SYSTEMS: Mapping[str, Dialect] = {**SHARING, **VENDORS}

_DEFAULT_DIALECT: Dialect = nvidia
"""Speaks only the word that the others use too: it is asked where no other claims the container."""

WORDS: Mapping[str, Word] = {resource: word for dialect in SHARING.values() for resource, word in dialect.WORDS.items()}
"""Every resource that nodes list by amounts; what other vendors' plugins list is theirs."""

RESOURCES = frozenset({GPU_RESOURCE, *WORDS})
"""Every resource that pods ask for NVIDIA's GPUs or shares of them with. Of them ``nvidia.com/gpu`` is kubelet's, and
the agent's ids. What else devices can be listed under `is_gpu_word` knows."""


def is_gpu_word(resource: str) -> bool:
    """Whether pods ask for NVIDIA's devices with this resource."""
    return resource in WORDS or is_gpu_resource(resource)


def is_device_word(resource: str, families: Collection[str]) -> bool:
    """Whether pods ask for devices with this resource: NVIDIA's, or those of a family that is served, by name."""
    return is_gpu_word(resource) or _vendor(resource, families) is not None


def _vendor(resource: str, families: Collection[str]) -> VendorDialect | None:
    dialect = _VENDOR_BY_RESOURCE.get(resource)
    return dialect if dialect is not None and dialect.family.name in families else None


MAX_CONTAINERS = 512
"""Of a pod that requests devices, init containers included. Real pods have less than a tenth of that; the API server
accepts tens of thousands, and each is read whenever the pod is evaluated."""

_MAX_OTHER_RESOURCES = 16
"""Resources of a container beside GPUs that are looked at: as many as an inventory has pools."""

_GPU_RECORDS = tuple(dict.fromkeys(name for dialect in SHARING.values() for name in dialect.RECORDS))


def record_annotations(pod: PodManifest) -> tuple[str, ...]:
    """The pod's annotations by which other systems' schedulers record a placement of what it asks for; users have no
    business writing them."""
    return tuple(dict.fromkeys((*_GPU_RECORDS, *sorted(vendor_records(pod)))))


def vendor_records(pod: PodManifest) -> frozenset[str]:
    """The annotations by which the device plugins of served families are told what the pod is given, of every family
    that the pod names."""
    if not pod.families:
        return frozenset()
    named = {name for container in pod.containers for name in (*container.limits, *container.requests)}
    found = (_vendor(name, pod.families) for name in named)
    return frozenset(record for dialect in found if dialect is not None for record in dialect.RECORDS)


def asks_for_devices(pod: PodManifest) -> bool:
    """Whether any container asks for devices, in sense or nonsense."""
    if INIT_RESOURCES_ANNOTATION in pod.annotations or kai.has_request_annotations(pod):
        return True
    return any(_claimants(pod, container) for container in pod.containers)


def vendor_families(pod: PodManifest) -> tuple[DeviceFamily, ...]:
    """The served families of other vendors' devices for which a pod asks; none where it asks for NVIDIA's as well."""
    asked: dict[VendorDialect, None] = {}
    for dialect in (each for container in pod.containers for each in _claimants(pod, container)):
        if not isinstance(dialect, VendorDialect):
            return ()  # without a look at the others: pods may have thousands of containers
        asked[dialect] = None
    return tuple(dialect.family for dialect in asked)


def parse(pod: PodManifest) -> PodRequest | None:
    """What a pod asks for; None where it asks for no devices. Raises `DialectError` with everything that is wrong."""
    if not asks_for_devices(pod):
        return None
    if len(pod.containers) > MAX_CONTAINERS:
        raise DialectError(
            [f"the pod has {len(pod.containers)} containers, but a pod with GPUs may have at most {MAX_CONTAINERS}"]
        )
    seen_by_kubelet, asked = _kubelet_pod(pod), _effective_requests(pod)
    pod = restore_pod(pod)
    problems = Problems()
    if problem := units_problem(pod):
        problems.add(problem)
    kai.check_pod(pod, problems)
    selectors = read_selectors(pod.annotations, problems)
    required = requires_enforcement(pod, problems)
    parsed = (_parse_container(pod, container, selectors, required, problems) for container in pod.containers)
    containers = tuple(request for request in parsed if request is not None)
    family = _family(containers, problems)
    check_init_containers(containers, problems)
    check_shares_match(containers, problems)
    if (total := sum(container.devices.count for container in containers)) > MAX_DEVICES_ASKED:
        problems.add(f"the pod's containers ask for {total} devices in total: the maximum is {MAX_DEVICES_ASKED}")
    request = PodRequest(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        containers=containers,
        node_policy=read_node_policy(pod.annotations, problems),
        gpu_policy=read_gpu_policy(pod.annotations, problems),
        weights=read_weights(pod.annotations, problems),
        priority=pod.priority,
        kubelet_pod=seen_by_kubelet,
        cpu_milli=asked.cpu_milli,
        memory_mib=asked.memory_mib,
        systems=_systems(pod),
        family=family,
        gpu_nic=read_gpu_nic(pod.annotations, containers, problems),
    )
    problems.raise_if_any()
    return request if containers else None


def _family(containers: Iterable[ContainerRequest], problems: Problems) -> str:
    """Of the pod's devices, as `PodRequest.family`. A quota, a node's lock and a grant's record are of one family."""
    resources = dict.fromkeys(each.devices.resource for each in containers)
    families = dict.fromkeys(resource if resource in BY_RESOURCE else "" for resource in resources)
    if len(families) > 1:
        names = " and ".join(BY_RESOURCE[each].name if each else "NVIDIA" for each in families)
        problems.add(f"the pod asks for devices of {brief(names)}, but a pod can have devices of only one family")
    return next(iter(families), "")


def _kubelet_pod(pod: PodManifest) -> KubeletPod | None:
    """The pod with what it asks for beside devices, for kubelet aligns CPUs and memory with them.

    An invalid quantity is reported by the dialect that owns the resource, and otherwise by the API server.
    """
    added = default_limits(pod)
    containers = tuple(
        msgspec.structs.replace(container, limits={**container.limits, **added.get(container.name, {})})
        for container in pod.containers
    )
    try:
        return kubelet_pod(msgspec.structs.replace(pod, containers=containers))
    except QuantityError:
        return None


def _effective_requests(pod: PodManifest) -> EffectiveRequests:
    """An invalid quantity is reported by the API server."""
    try:
        return pod_resources(pod)
    except QuantityError:
        return EffectiveRequests()


def default_limits(pod: PodManifest) -> dict[str, dict[str, str]]:
    """By container, the limits that must be added to a pod that parses.

    ``nvidia.com/gpu``, so that kubelet calls the agent, and limits for what stands in requests alone: the API server
    refuses an extended resource that has no limit.
    """
    added = {container.name: _default_limits(pod, container) for container in restore_pod(pod).containers}
    return {name: limits for name, limits in added.items() if limits}


def added_variables(pod: PodManifest) -> dict[str, dict[str, str]]:
    """By container, the variables that the device plugins of other vendors want to see on it."""
    added: dict[str, dict[str, str]] = {}
    for container in pod.containers:
        for dialect in _claimants(pod, container):
            if isinstance(dialect, VendorDialect) and (env := dialect.env(container)):
                added[container.name] = env
    return added


def grant_annotations(
    pod: PodManifest, systems: Iterable[str], grant: Grant, inventory: NodeInventory, at_ns: int
) -> dict[str, str]:
    """What the systems whose words the pod uses would record of this grant, to go beside Purser's own annotations.

    ``at_ns``: when the pod is bound, in nanoseconds since 1970, for those whose records have a time.
    """
    record: dict[str, str] = {}
    for system in systems:
        record |= _SYSTEMS[system].grant_annotations(pod, grant, inventory, at_ns)
    return record


def environment(pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]) -> dict[str, str]:
    """Variables of a granted container that programs know from the device plugin of the system whose words it uses.

    ``devices``: the node's, by uuid.
    """
    container = next((each for each in pod.containers if each.name == part.container), None)
    claimants = [] if container is None else _claimants(pod, container)
    return claimants[0].environment(pod, grant, part, devices) if claimants else {}


def _claimants(pod: PodManifest, container: ContainerSpec) -> list[Dialect]:
    named = (*container.limits, *container.requests)
    found = (_vendor(name, pod.families) for name in named) if pod.families else ()
    vendors = dict.fromkeys(each for each in found if each is not None)
    if kai.claims(pod, container):  # with what it asks for in other words, which it knows
        return [kai, *(each for each in vendors if each.claims(pod, container))]
    if not (vendors or any(map(is_gpu_word, named))):
        return []
    claimants: list[Dialect] = [dialect for dialect in (*SHARING.values(), *vendors) if dialect.claims(pod, container)]
    if len(claimants) > 1:  # a zero in one system's words is no mixture: the GPUs beside it may be the webhook's
        claimants = [dialect for dialect in claimants if _uses_dialect(dialect, container)]
    return claimants or ([_DEFAULT_DIALECT] if _DEFAULT_DIALECT.claims(pod, container) else [])


def _systems(pod: PodManifest) -> tuple[str, ...]:
    asked = [dialect for container in pod.containers for dialect in _claimants(pod, container)]
    return tuple(
        name for name, dialect in _SYSTEMS.items() if dialect in asked or not dialect.MARKS.isdisjoint(pod.annotations)
    )


def _uses_dialect(dialect: Dialect, container: ContainerSpec) -> bool:
    """Whether it asks for devices in a system's words; a priority alone asks for none."""
    return any(asks_for(container, resource) for resource in dialect.WORDS if resource != hami.PRIORITY)


def _parse_container(
    pod: PodManifest, container: ContainerSpec, selectors: Selectors, required: bool, problems: Problems
) -> ContainerRequest | None:
    claimants = _claimants(pod, container)
    if words := _mixed_words(container, claimants):
        words_text = brief(" and ".join(words))
        problems.add(f'container "{container.name}" mixes {words_text}: {_advice_for_mix(words)}')
        return None
    if not claimants:
        return None
    dialect = claimants[0]
    if isinstance(dialect, VendorDialect):
        selectors = dialect.selectors(pod.annotations, problems)
    devices = dialect.parse_container(pod, container, selectors, problems)
    if devices is None:
        return None
    hold = SpecHold() if isinstance(dialect, VendorDialect) else spec_hold(container)
    if required:
        devices = vendor_enforcement(devices) if isinstance(dialect, VendorDialect) else held(devices, hold)
    # Of other vendors' devices nobody says below which switch they are.
    beside = () if isinstance(dialect, VendorDialect) else _other_limits(container)
    return ContainerRequest(container.name, container.kind, devices, hold, beside)


def _other_limits(container: ContainerSpec) -> tuple[tuple[str, int], ...]:
    """Its limits of other plugins' resources. An invalid quantity is reported by the API server."""
    others = [
        name for name in container.limits if "/" in name and not is_gpu_word(name) and name not in _VENDOR_BY_RESOURCE
    ]
    found = []
    for name in sorted(others)[:_MAX_OTHER_RESOURCES]:
        try:
            found.append((name, quantity_ceil(container.limits[name])))
        except QuantityError:
            continue
    return tuple((name, count) for name, count in found if count > 0)


def _mixed_words(container: ContainerSpec, claimants: list[Dialect]) -> list[str]:
    """The words of several systems, or of devices and of amounts, in which a container asks; none: it asks in one."""
    amounts = [
        resource
        for dialect in claimants
        for resource in dialect.WORDS
        if (asks_for(container, resource) if len(claimants) == 1 else container.quantity(resource) is not None)
    ]
    devices = nvidia.resources(container)
    others = [resource for resource in devices if resource != GPU_RESOURCE]
    if len(claimants) > 1:
        return [*(["KAI's annotations"] if kai in claimants else []), *amounts]
    if devices and isinstance(claimants[0], VendorDialect):
        return [*devices, *amounts]
    return [*devices, *amounts] if others and len(devices) + len(amounts) > 1 else []


def _advice_for_mix(words: list[str]) -> str:
    if mig := next((word for word in words if word.startswith(MIG_PREFIX)), ""):
        return f"a MIG device has its own memory and compute, so ask for only {brief(mig, 63)}"
    return "use the resources of only one system"


def _default_limits(pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
    claimants = _claimants(pod, container)
    if len(claimants) != 1:
        return {}
    dialect = claimants[0]
    wanted = _requests_of((*nvidia.resources(container), *dialect.WORDS), container.requests)
    instead: dict[str, str] = {}
    if isinstance(dialect, VendorDialect):
        instead = dialect.rounded_count(container)
        wanted = {**dialect.limits(pod, container), **wanted}
    else:
        wanted |= dialect.limits(pod, container)
    return {name: value for name, value in wanted.items() if _is_missing(name, value, container.limits)} | instead


def _is_missing(name: str, value: str, limits: Mapping[str, str]) -> bool:
    """A zero, such as a LimitRange's default, is as absent."""
    return name not in limits or (is_zero(limits[name]) and not is_zero(value))


def _requests_of(resources: tuple[str, ...], requests: Mapping[str, str]) -> dict[str, str]:
    return {resource: requests[resource] for resource in resources if resource in requests}
