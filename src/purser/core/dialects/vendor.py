"""The vocabulary of one device family of another vendor, by what the data says of it (`purser.core.vendors`).

Meanings are those of HAMi v2.10 (``pkg/device``). Where HAMi lets a pod run without devices, or clamps a number without
a word, the pod is refused with a sentence instead. The vendor's own plugin serves kubelet, and lists what there is.
"""

from collections.abc import Mapping, Sequence

import msgspec

from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.hami_codec import ContainerDevice, encode_pod_devices
from purser.core.dialects.quantities import MAX_DEVICE_MEMORY_MIB, amount
from purser.core.dialects.selectors import Selectors, names_in
from purser.core.model import WHOLE_PERCENT, ContainerGrant, Device, DeviceRequest, DeviceShare, Grant, NodeInventory
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.vendors.family import CoresResource, DeviceFamily, MemoryResource

_NANOSECONDS = 10**9


class VendorDialect:
    """A `purser.core.dialects.dialect.Dialect`."""

    def __init__(self, family: DeviceFamily) -> None:
        self.family = family
        self.WORDS: Mapping[str, Word] = {resource: _word(family) for resource in family.resources}
        self.MARKS: frozenset[str] = frozenset()
        about = f"For the device plugin of {family.name}."
        self.RECORDS: Mapping[str, str] = dict.fromkeys((*family.records, *family.several_records), about)

    def claims(self, container: ContainerSpec) -> bool:
        """Whether the container asks for anything of the family."""
        return any(asks_for(container, resource) for resource in self.WORDS)

    def selectors(self, annotations: Mapping[str, str], problems: Problems) -> Selectors:
        """What the pod's annotations say of the family's devices; what makes no sense is noted."""
        uuids, models = self.family.uuids, self.family.models
        return Selectors(
            models_allowed=names_in(annotations, models.allowed, problems) if models else (),
            models_denied=names_in(annotations, models.denied, problems) if models else (),
            uuids_allowed=names_in(annotations, uuids.allowed, problems) if uuids else (),
            uuids_denied=names_in(annotations, uuids.denied, problems) if uuids else (),
        )

    def parse_container(
        self, pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
    ) -> DeviceRequest | None:
        """Devices, or a share of each."""
        noted = Problems()
        count = self._count(container, noted)
        memory_mib = self._memory_mib(container, count, noted)
        cores_percent = self._cores_percent(container, count, memory_mib, noted)
        problems.extend(noted)
        if noted:
            return None
        return DeviceRequest(
            count=count,
            memory_mib=memory_mib,
            memory_percent=WHOLE_PERCENT if memory_mib is None else None,
            cores_percent=cores_percent,
            models_allowed=selectors.models_allowed,
            models_denied=selectors.models_denied,
            uuids_allowed=selectors.uuids_allowed,
            uuids_denied=selectors.uuids_denied,
            resource=self.family.resource,
        )

    def _count(self, container: ContainerSpec, problems: Problems) -> int:
        family = self.family
        for resource in family.unserved:
            if asks_for(container, resource):
                problems.add(f'container "{container.name}": Purser does not serve {resource}: leave it out')
        if not asks_for(container, family.resource):
            named = next((each for each in self.WORDS if asks_for(container, each)), family.resource)
            problems.add(
                f'container "{container.name}" asks for {named} and for no {family.resource}: '
                f"write how many devices it is to have"
            )
            return 1
        return amount(container, family.resource, 1, MAX_DEVICES_ASKED, "a number of devices", problems) or 1

    def _memory_mib(self, container: ContainerSpec, count: int, problems: Problems) -> int | None:
        """Of each device; None: all."""
        memory = self.family.memory
        if memory is None:
            return None
        most, unit = MAX_DEVICE_MEMORY_MIB // memory.unit_mib, f"units of {memory.unit_mib} MiB"
        units = amount(container, memory.resource, 0, most, unit, problems)
        if not units:
            return None
        if count > 1 and memory.whole:
            self._check_sum(container, memory.resource, units, memory.whole * count, count, problems)
            return None
        if memory.allowed and units not in memory.allowed:
            allowed = ", ".join(map(str, memory.allowed))
            problems.add(f'container "{container.name}": {memory.resource} "{units}" is no size: use one of {allowed}')
        share = None if units == memory.whole else self._size(container, memory, units, problems)
        if share is not None and count > 1 and self.family.several_are_whole:
            problems.add(
                f'container "{container.name}" asks for {count} devices and a share of each: a container gets several '
                f"devices of {self.family.name} only whole: leave {memory.resource} out"
            )
        return share

    def _size(self, container: ContainerSpec, memory: MemoryResource, units: int, problems: Problems) -> int | None:
        mib, most = units * memory.unit_mib, self.family.templates_up_to_mib
        if not self.family.templates:
            return mib
        if mib > most:
            problems.add(
                f'container "{container.name}": {memory.resource} "{units}" is out of range: {most} is the most'
            )
        template = self.family.template_for(mib)
        return None if template is None else template.memory_mib

    def _cores_percent(self, container: ContainerSpec, count: int, memory_mib: int | None, problems: Problems) -> int:
        cores = self.family.cores
        if cores is None:
            return WHOLE_PERCENT if memory_mib is None else 0
        in_sum = (cores.whole or cores.of_several) if count > 1 else 0
        most = in_sum * count or cores.per_device
        units = amount(container, cores.resource, 0, most, f"whole numbers, {cores.per_device} for a device", problems)
        if in_sum:
            if units is not None:
                self._check_sum(container, cores.resource, units, most, count, problems)
            units = in_sum
        if units is None:
            return WHOLE_PERCENT if cores.whole and memory_mib is None else cores.unset
        return units * WHOLE_PERCENT // cores.per_device

    def _check_sum(
        self, container: ContainerSpec, resource: str, units: int, wanted: int, count: int, problems: Problems
    ) -> None:
        if units != wanted:
            problems.add(
                f'container "{container.name}": {resource} "{units}" does not go with {count} devices, whole ones: '
                f"leave it out, or write {wanted}"
            )

    def device_count(self, pod: PodManifest, container: ContainerSpec) -> str | None:
        """None: kubelet asks the vendor's plugin."""
        return None

    def limits(self, container: ContainerSpec) -> dict[str, str]:
        """What the container must name beside what it does, for kubelet to ask the vendor's plugin for all of it."""
        family, problems = self.family, Problems()
        count = amount(container, family.resource, 1, MAX_DEVICES_ASKED, "", problems) or 0
        found = {}
        memory, cores = family.memory, family.cores
        is_whole = count > 1 or (memory is not None and container.quantity(memory.resource) is None)
        for part in (memory, cores):
            if part is not None and (each := _each_names(part, count, is_whole)):
                found[part.resource] = str(each * count)
        return found if count else {}

    def env(self, container: ContainerSpec) -> dict[str, str]:
        """The variables that the container must have, and has not."""
        there = {variable.name for variable in container.env}
        wanted = self.family.env.items()
        return {name: value.format(container=container.name) for name, value in wanted if name not in there}

    def grant_annotations(self, pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
        """What HAMi's scheduler would write for the vendor's plugin."""
        family = self.family
        held = [part.shares if (part := grant.of(each.name)) is not None else () for each in pod.containers]
        shares = [share for of_container in held for share in of_container]
        indices = {device.uuid: device.index for device in inventory.devices}
        places = [indices[share.uuid] for share in shares if share.uuid in indices]
        first = shares[0] if shares else DeviceShare("", 0, 0)
        fields = {
            "node": grant.node,
            "seconds": at_ns // _NANOSECONDS,
            "nanoseconds": at_ns,
            "devices": encode_pod_devices([[self._device(share) for share in each] for each in held]),
            "indices": ",".join(map(str, places)),
            "count": len(shares),
            "index": places[0] if places else "",
            "cores": family.cores_of(first.cores_percent),
            "memory": first.memory_mib // family.memory_unit_mib(),
            "templates": self._templates(shares),
        }
        records = {**family.records, **(family.several_records if len(shares) > 1 else {})}
        return {name: value.format_map(fields) for name, value in records.items()}

    def environment(
        self, pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]
    ) -> dict[str, str]:
        """None: the vendor's plugin sets its own."""
        return {}

    def _device(self, share: DeviceShare) -> ContainerDevice:
        family = self.family
        cores = 0 if family.cores is None else family.cores_of(share.cores_percent)
        return ContainerDevice(share.uuid, family.word, share.memory_mib, cores)

    def _templates(self, shares: Sequence[DeviceShare]) -> str:
        """As Ascend's plugin reads it; what is empty is left out."""
        found: list[dict[str, str | int]] = []
        for share in shares:
            template = None if share.is_whole else self.family.template_for(share.memory_mib)
            named: dict[str, str | int] = {} if template is None else {"temp": template.name}
            found.append({"UUID": share.uuid, **named, "memory": share.memory_mib})
        return msgspec.json.encode(found).decode()


def _each_names(part: MemoryResource | CoresResource, count: int, is_whole: bool) -> int:
    """What a container must name of it for each of so many devices; 0: nothing."""
    if part.whole and is_whole:
        return part.whole
    return part.of_several if isinstance(part, CoresResource) and count > 1 else 0


def _word(family: DeviceFamily) -> Word:
    return Word(f"{family.name}: see docs/vendors.md.", lambda device: 0, lambda usage: 0)
