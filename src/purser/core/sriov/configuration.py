"""The configuration file of the SR-IOV network device plugin (``config.json``), read as that plugin reads it.

Source: pkg/types, pkg/factory and cmd/sriovdp of sriov-network-device-plugin. Keys may be written in any case, and keys
that it does not know are passed over, but for those of selectors: a misspelt condition that counts for nothing would
give a pool every device of the node. A pool with a mistake is left out, as `SriovConfig.problems` says; that plugin
ends, unless it is in selectors. What its selectors mean is left out with it: a typo must not make these devices a later
pool's. Where nobody knows what they mean, because they cannot be read, or of which type of device, later pools have it.
"""

import difflib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.inspect import type_info

from purser.core.decoding import JsonReader, UnreadableError, brief, convert_value
from purser.core.dialects import is_gpu_word
from purser.core.go_json import normalise_keys
from purser.core.kubelet.devicemanager.registration import is_extended_resource
from purser.core.salvaging import cap_sentences, mistake_sentence, salvage, shown
from purser.core.sriov.names import DEFAULT_PREFIX
from purser.core.vendors.catalogue import BY_WORD

FILE = "the SR-IOV configuration"
"""What errors call it."""

MAX_FILE_BYTES = 1 << 20
"""What a ConfigMap can hold."""

MAX_POOLS = 256
MAX_SELECTORS = 1024
"""Of all pools together: each is compared with every device."""

MAX_NOTES = 20
"""Notes at most."""

VDPA_TYPES = ("vhost", "virtio")
AUX_TYPES = ("sf",)
"""Auxiliary devices of other types are not served: only subfunctions are network devices."""


class SriovConfigError(ValueError):
    """What the file says cannot be; the message says where it stands, and why."""


class SriovDeviceType(StrEnum):
    """``deviceType``: what a pool holds."""

    NET_DEVICE = "netDevice"
    """PCI functions of class 02: network controllers, and their VFs."""
    ACCELERATOR = "accelerator"
    """PCI functions of class 12."""
    AUX_NET_DEVICE = "auxNetDevice"
    """Subfunctions of network controllers, on the auxiliary bus."""


class SriovSelector(msgspec.Struct, frozen=True, rename="camel"):
    """One object of ``selectors``: a device must satisfy each list that is not empty."""

    vendors: tuple[str, ...] = ()
    """Four hexadecimal digits, without 0x."""
    devices: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    pci_addresses: tuple[str, ...] = ()
    acpi_indexes: tuple[str, ...] = ()
    pf_names: tuple[str, ...] = ()
    """``ens1f0``, or ``ens1f0#0,2-7`` for some of its functions."""
    root_devices: tuple[str, ...] = ()
    """The same with the PF's PCI address."""
    link_types: tuple[str, ...] = ()
    ddp_profiles: tuple[str, ...] = ()
    p_keys: tuple[str, ...] = ()
    aux_types: tuple[str, ...] = ()
    is_rdma: bool = False
    vdpa_type: str = ""
    need_vhost_net: bool = False
    """No condition: containers get /dev/vhost-net and /dev/net/tun too."""


_PCI_FIELDS = ("vendors", "devices", "drivers", "pciAddresses")
_NET_FIELDS = ("pfNames", "rootDevices", "linkTypes", "isRdma", "acpiIndexes", "needVhostNet")
_FIELDS = {
    SriovDeviceType.NET_DEVICE: {*_PCI_FIELDS, *_NET_FIELDS, "ddpProfiles", "vdpaType", "pKeys"},
    SriovDeviceType.ACCELERATOR: {*_PCI_FIELDS},
    SriovDeviceType.AUX_NET_DEVICE: {"vendors", "devices", "drivers", *_NET_FIELDS, "auxTypes"} - {"acpiIndexes"},
}
"""Selectors that count, by type of device."""


class SriovPoolConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``resourceList``."""

    prefix: str
    name: str
    device_type: SriovDeviceType
    selectors: tuple[SriovSelector, ...]
    """A device that satisfies any of these is the pool's, unless an earlier selector has it."""
    exclude_topology: bool = False
    """Whether kubelet is not to learn the devices' NUMA nodes."""
    additional_info: Mapping[str, Mapping[str, str]] = {}
    """By PCI address, or ``*`` for all: what a container's environment says of its device."""
    is_refused: bool = False
    """Whether it is not served. What its selectors mean is no other pool's."""

    @property
    def resource(self) -> str:
        """As kubelet calls it: ``intel.com/sriov_netdevice``."""
        return f"{self.prefix}/{self.name}"


class SriovConfig(msgspec.Struct, frozen=True):
    """The file. The least there can be names no pool."""

    pools: tuple[SriovPoolConfig, ...] = ()
    """In the order of the file, in which devices are given out to them."""
    notes: tuple[str, ...] = ()
    """What was passed over, a sentence each."""
    problems: tuple[str, ...] = ()
    """Of pools that are left out, a sentence each."""

    @property
    def selects_by_package(self) -> bool:
        """Whether any selector goes by DDP packages, which cost more to ask for than all else."""
        return any(each.ddp_profiles for pool in self.pools for each in pool.selectors)


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    resource_name: str = ""
    resource_prefix: str = ""
    device_type: str = ""
    exclude_topology: bool = False
    selectors: Any = None
    additional_info: dict[str, dict[str, str]] = {}


class _File(msgspec.Struct, frozen=True, rename="camel"):
    resource_list: tuple[Any, ...] = ()


_json_reader: JsonReader[Any] = JsonReader(object, FILE, max_bytes=MAX_FILE_BYTES)
_FILE_SHAPE, _ENTRY_SHAPE, _SELECTOR_SHAPE = map(type_info, (_File, _Entry, SriovSelector))


def sriov_config(text: str | bytes, default_prefix: str = DEFAULT_PREFIX) -> SriovConfig:
    """The file, decoded. ``default_prefix``: of pools that name none. Raises `SriovConfigError`, and nothing else."""
    unknown: list[str] = []
    try:
        file = convert_value(normalise_keys(_json_reader.read(text), _FILE_SHAPE, unknown), _File, FILE)
    except UnreadableError as error:
        raise SriovConfigError(str(error)) from error
    notes = [f"{FILE}: {where} is unknown and ignored" for where in unknown]
    problems: list[str] = []
    pools = tuple(_pools(file, default_prefix, notes, problems))
    return SriovConfig(pools, cap_sentences(notes, MAX_NOTES, FILE), cap_sentences(problems, MAX_NOTES, FILE))


def _pools(file: _File, default_prefix: str, notes: list[str], problems: list[str]) -> Iterator[SriovPoolConfig]:
    """Pools of which at least one selector can be read."""
    seen: set[str] = set()
    room = MAX_SELECTORS
    if (entries := len(file.resource_list)) > MAX_POOLS:
        problems.append(
            f"{FILE}: resourceList has {entries} entries, and those after the first {MAX_POOLS} are ignored: use at "
            f"most {MAX_POOLS} entries"
        )
    for place, raw in enumerate(file.resource_list[:MAX_POOLS]):
        where = f"{FILE}: resourceList[{place}]"
        unknown: list[str] = []
        mistakes: list[str] = []
        if not isinstance(raw, dict):
            problems.append(mistake_sentence(FILE, f"resourceList[{place}]", raw, "an object"))
            continue
        entry = _entry(normalise_keys(raw, _ENTRY_SHAPE, unknown), where, mistakes)
        notes += (f"{where}.{each} is unknown and ignored" for each in unknown)
        device_type = _device_type(entry, where, mistakes)
        selectors = _selectors(entry, device_type, where, notes, mistakes)
        if len(selectors) > room:
            mistakes.append(
                f"{where}.selectors: all pools together may have at most {MAX_SELECTORS} selectors, which leaves at "
                f"most {room} for this pool"
            )
            selectors = ()
        room -= len(selectors)
        pool = SriovPoolConfig(
            prefix=entry.resource_prefix or default_prefix,
            name=entry.resource_name,
            device_type=device_type or SriovDeviceType.NET_DEVICE,
            selectors=selectors,
            exclude_topology=entry.exclude_topology,
            additional_info=entry.additional_info,
        )
        mistakes += (f"{where}: {each}" for each in _problems(pool, seen))
        if mistakes:
            known = tuple(each for each in selectors if device_type is not None and _is_satisfiable(each, device_type))
            consequence = ", and so are the devices that its selectors match" if known else ""
            problems += (f"{each}. The pool is ignored{consequence}" for each in mistakes)
            pool = msgspec.structs.replace(pool, is_refused=True, selectors=known)
        else:
            seen.add(pool.resource)
        if pool.selectors:
            yield pool


def _entry(tidy: dict[str, Any], where: str, mistakes: list[str]) -> _Entry:
    """With what of it can be read."""
    found: list[str] = []
    entry = salvage(tidy, _Entry, where, found)
    mistakes += (each.removesuffix(". The value is ignored") for each in found)
    has_type = isinstance(tidy.get("deviceType", ""), str)
    return entry if has_type else msgspec.structs.replace(entry, device_type=_UNREADABLE_TYPE)


_UNREADABLE_TYPE = "unreadable"
"""Stands for a ``deviceType`` that is not text."""


def _device_type(entry: _Entry, where: str, mistakes: list[str]) -> SriovDeviceType | None:
    """None: it is none of these."""
    if entry.device_type == "":
        return SriovDeviceType.NET_DEVICE
    if entry.device_type in tuple(SriovDeviceType):
        return SriovDeviceType(entry.device_type)
    if entry.device_type != _UNREADABLE_TYPE:
        words = ", ".join(SriovDeviceType)
        mistakes.append(f"{where}: deviceType is {brief(entry.device_type, 40)}, but must be one of {words}")
    return next((each for each in SriovDeviceType if each.lower() == entry.device_type.lower()), None)


def _selectors(
    entry: _Entry, device_type: SriovDeviceType | None, where: str, notes: list[str], mistakes: list[str]
) -> tuple[SriovSelector, ...]:
    """Those that can be read; where ``device_type`` is not known, with all that they say."""
    at = f"{where}.selectors"
    objects = [entry.selectors] if isinstance(entry.selectors, dict) else entry.selectors
    if not isinstance(objects, list) or not objects:
        mistakes.append(f"{at} is {shown(entry.selectors)}, but must be an object, or a list of at least one object")
        return ()
    found = []
    for place, each in enumerate(objects):
        here = f"{at}[{place}]" if isinstance(entry.selectors, list) else at
        unknown: list[str] = []
        odd: list[str] = []
        tidy = normalise_keys(each, _SELECTOR_SHAPE, unknown)
        odd += (_unknown_field(here, key) for key in unknown if key.lower() != "selectorobj")
        if isinstance(tidy, dict) and device_type is not None:
            unused = sorted(tidy.keys() - _FIELDS[device_type])
            notes += (f"{here}: {key} has no effect with deviceType {device_type}" for key in unused)
            kept = {key: value for key, value in tidy.items() if key not in unused}
            if unused and not kept:
                write = ", ".join(sorted(_FIELDS[device_type]))
                odd.append(f"{here} has no field that applies to deviceType {device_type}: use at least one of {write}")
            tidy = kept
        selector = _selector(tidy, here, odd)
        mistakes += odd
        if selector is not None and not odd:
            found.append(selector)
    return tuple(found)


def _selector(tidy: Any, here: str, odd: list[str]) -> SriovSelector | None:
    """None: it is not an object. A field that cannot be read goes to ``odd``."""
    found: list[str] = []
    try:
        return salvage(tidy, SriovSelector, here, found)
    except UnreadableError as error:
        found = [str(error)]
        return None
    finally:
        odd += (each.removesuffix(". The value is ignored") for each in found)


def _unknown_field(here: str, key: str) -> str:
    """The sentence for a field that selectors do not have."""
    known = sorted(field.encode_name for field in msgspec.structs.fields(SriovSelector))
    close = difflib.get_close_matches(key.lower(), [each.lower() for each in known], 1)
    write = next((each for each in known if each.lower() in close), "") or f"one of {', '.join(known)}"
    return f"{here}: unknown field {brief(key, 40)}: use {write}"


def _problems(pool: SriovPoolConfig, seen: set[str]) -> Iterator[str]:
    """Why it is not served."""
    resource = brief(pool.resource, 100)
    if "." in pool.name or not is_extended_resource(pool.resource):
        yield (
            f"kubelet would reject resource {resource}: the prefix must be a domain name, and resourceName at most 63 "
            "letters, digits, - and _, with a letter or digit at both ends"
        )
    if is_gpu_word(pool.resource):
        yield f"{resource} is a GPU resource: use another prefix or name"
    if (family := BY_WORD.get(pool.resource)) is not None:
        yield f"{resource} is a {family.name} resource: use another prefix or name"
    if _is_reserved_prefix(pool.prefix):
        yield f"{resource} has a prefix that is reserved for Kubernetes: use another prefix"
    if pool.resource in seen:
        yield f"{resource} appears twice: combine the selectors of both entries in one list"
    for each in pool.selectors:
        if each.is_rdma and each.vdpa_type:
            yield f"{resource}: isRdma and vdpaType are mutually exclusive in one selector: use a list of two selectors"
        if each.vdpa_type and each.vdpa_type not in VDPA_TYPES:
            yield f"{resource}: vdpaType is {brief(each.vdpa_type, 40)}, but must be one of {', '.join(VDPA_TYPES)}"
        if pool.device_type is SriovDeviceType.AUX_NET_DEVICE:
            yield from _aux_problems(resource, each)


def _is_satisfiable(selector: SriovSelector, device_type: SriovDeviceType) -> bool:
    """Whether it can be known which devices a selector means: not with a condition that no device can meet."""
    is_aux = device_type is SriovDeviceType.AUX_NET_DEVICE
    return not (
        (selector.vdpa_type and (selector.is_rdma or selector.vdpa_type not in VDPA_TYPES))
        or (is_aux and (not selector.aux_types or not set(selector.aux_types) <= set(AUX_TYPES)))
    )


def _is_reserved_prefix(prefix: str) -> bool:
    """Whether a prefix is reserved: ``kubernetes.io``, ``k8s.io`` and what ends in these."""
    return f".{prefix}".endswith((".kubernetes.io", ".k8s.io"))


def _aux_problems(resource: str, selector: SriovSelector) -> Iterator[str]:
    if not selector.aux_types:
        yield (
            f"{resource}: deviceType auxNetDevice needs auxTypes in each selector: must be one of "
            f"{', '.join(AUX_TYPES)}"
        )
    for each in selector.aux_types:
        if each not in AUX_TYPES:
            yield f"{resource}: auxTypes contains {brief(each, 40)}, but must contain only {', '.join(AUX_TYPES)}"
