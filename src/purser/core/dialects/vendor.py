"""The vocabulary of one device family of another vendor, by what the data says of it (`purser.core.vendors`).

Meanings are those of HAMi v2.10 (``pkg/device``): amounts in ``vendor_amounts``, what the vendor's plugin is told in
``vendor_records``. The vendor's own plugin serves kubelet, and lists what there is.
"""

from collections.abc import Mapping

from purser.core.decoding import brief
from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.quantities import amount
from purser.core.dialects.selectors import Selectors, names_in
from purser.core.dialects.vendor_amounts import VendorAmounts, read_amounts
from purser.core.dialects.vendor_records import vendor_record
from purser.core.model import WHOLE_PERCENT, ContainerGrant, Device, DeviceMode, DeviceRequest, Grant, NodeInventory
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.vendors.family import CoresResource, DeviceFamily, MemoryResource


class VendorDialect:
    """A `purser.core.dialects.dialect.Dialect`."""

    def __init__(self, family: DeviceFamily) -> None:
        self.family = family
        self.WORDS: Mapping[str, Word] = {resource: _word(family) for resource in family.resources}
        self.MARKS: frozenset[str] = frozenset()
        about = f"For {family.name}'s device plugin."
        self.RECORDS: Mapping[str, str] = dict.fromkeys(family.all_records, about)

    def claims(self, pod: PodManifest, container: ContainerSpec) -> bool:
        """Whether the container asks for anything of the family."""
        return any(asks_for(container, resource) for resource in self.WORDS)

    def selectors(self, annotations: Mapping[str, str], problems: Problems) -> Selectors:
        """What the pod's annotations say of the family's devices; what makes no sense is noted."""
        models = self.family.models
        pairs = [each for each in (self.family.uuids, self.family.second_uuids) if each is not None]
        allowed = {each.allowed: names_in(annotations, each.allowed, problems) for each in pairs}
        named = {name: frozenset(uuids) for name, uuids in allowed.items() if uuids}
        common = tuple(sorted(frozenset.intersection(*named.values()))) if named else ()
        if named and not common:
            problems.add(f"annotations {' and '.join(named)} together exclude every device: remove one of them")
        return Selectors(
            models_allowed=names_in(annotations, models.allowed, problems) if models else (),
            models_denied=names_in(annotations, models.denied, problems) if models else (),
            uuids_allowed=common if len(named) > 1 else next((uuids for uuids in allowed.values() if uuids), ()),
            uuids_denied=tuple(uuid for each in pairs for uuid in names_in(annotations, each.denied, problems)),
        )

    def parse_container(
        self, pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
    ) -> DeviceRequest | None:
        """Devices, or a share of each."""
        noted, family = Problems(), self.family
        is_soft = family.is_soft(pod.annotations)
        asked = read_amounts(family, container, is_soft, noted)
        self._check_annotations(pod, container, asked, noted)
        problems.extend(noted)
        if noted:
            return None
        is_foreground = family.classes is not None and self._class(pod) == family.classes.foreground
        return DeviceRequest(
            count=asked.count,
            memory_mib=asked.memory_mib,
            memory_percent=asked.memory_percent,
            cores_percent=0 if is_foreground else asked.cores_percent,
            models_allowed=selectors.models_allowed,
            models_denied=selectors.models_denied,
            uuids_allowed=selectors.uuids_allowed,
            uuids_denied=selectors.uuids_denied,
            # Devices whose cores nobody lists are whole.
            modes_allowed=(DeviceMode.SHARED,) if asked.by_cores else (),
            resource=family.resource,
            linked=family.linked.groups(asked.count) if family.linked is not None and asked.count > 1 else (),
            alike=self._neighbour_key(pod, asked, is_soft),
            joins=self._background_words() if is_foreground else (),
            slices=asked.slices,
            soft_split=is_soft,
        )

    def _check_annotations(
        self, pod: PodManifest, container: ContainerSpec, asked: VendorAmounts, problems: Problems
    ) -> None:
        family, classes, named = self.family, self.family.classes, self._class(pod)
        if classes is not None and named:
            if named not in (classes.foreground, classes.background):
                words = f"{classes.foreground} or {classes.background}"
                problems.add(f"invalid value {brief(named)!r} for annotation {classes.annotation}: must be {words}")
            if asked.count > 1:
                problems.add(
                    f'container "{container.name}" asks for {asked.count} devices, but with annotation '
                    f"{classes.annotation} it can have only one: ask for 1"
                )
        if family.quality is not None and (word := self._quality(pod)) not in family.quality.words:
            words = ", ".join(family.quality.words)
            problems.add(
                f"invalid value {brief(word)!r} for annotation {family.quality.annotation}: must be one of {words}"
            )

    def _neighbour_key(self, pod: PodManifest, asked: VendorAmounts, is_soft: bool) -> str:
        """What shares beside it must have in common with it; who has the device alone has none beside it."""
        family, classes, named = self.family, self.family.classes, self._class(pod)
        if classes is not None and named == classes.foreground:
            return f"class: {named}"
        if asked.cores_percent >= WHOLE_PERCENT:
            return ""
        if named:
            return f"class: {named}, {self._quality(pod)}"
        if family.soft_split is not None:
            return "the soft split" if is_soft else ""
        if family.same_size_shares and asked.memory_mib is not None:
            return f"{asked.memory_mib} MiB"
        return self._quality(pod)

    def _class(self, pod: PodManifest) -> str:
        """The pod's class; empty: none."""
        return "" if self.family.classes is None else pod.annotations.get(self.family.classes.annotation, "")

    def _background_words(self) -> tuple[str, ...]:
        """What shares of the background have in common, by quality of service."""
        classes, quality = self.family.classes, self.family.quality
        words = () if quality is None else quality.words
        return () if classes is None else tuple(f"class: {classes.background}, {word}" for word in words)

    def _quality(self, pod: PodManifest) -> str:
        """The pod's quality of service; empty where the family knows none."""
        quality = self.family.quality
        return "" if quality is None else pod.annotations.get(quality.annotation, "") or quality.words[0]

    def limits(self, pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
        """What the container must name beside what it does, for kubelet to ask the vendor's plugin for all of it."""
        family, problems = self.family, Problems()
        count = amount(container, family.resource, 1, MAX_DEVICES_ASKED, "", problems) or 0
        found = {}
        memory, cores = family.memory, family.cores
        is_whole = count > 1 or (memory is not None and container.quantity(memory.resource) is None)
        for part in (memory, cores):
            if part is not None and (each := _amount_per_device(part, count, is_whole)):
                found[part.resource] = str(each * count)
        return found if count else {}

    def rounded_count(self, container: ContainerSpec) -> dict[str, str]:
        """The number that the container must name instead, where it is below the fewest devices that one can have."""
        count = amount(container, self.family.resource, 1, MAX_DEVICES_ASKED, "", Problems()) or 0
        return {self.family.resource: str(self.family.fewest)} if 0 < count < self.family.fewest else {}

    def env(self, container: ContainerSpec) -> dict[str, str]:
        """The variables that the container must have, and has not."""
        there = {variable.name for variable in container.env}
        wanted = self.family.env.items()
        return {name: value.format(container=container.name) for name, value in wanted if name not in there}

    def grant_annotations(self, pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
        """What HAMi would write for the vendor's plugin: its scheduler, and of the quality its webhook."""
        quality = self.family.quality
        in_front = self.family.classes is not None and self._class(pod) == self.family.classes.foreground
        has_quality = quality is None or in_front or bool(pod.annotations.get(quality.annotation))
        default = {} if quality is None or has_quality else {quality.annotation: quality.words[0]}
        return vendor_record(self.family, pod, grant, inventory, at_ns) | default

    def environment(
        self, pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]
    ) -> dict[str, str]:
        """None: the vendor's plugin sets its own."""
        return {}


def _amount_per_device(part: MemoryResource | CoresResource, count: int, is_whole: bool) -> int:
    """What a container must name of it for each of so many devices; 0: nothing."""
    if part.whole and is_whole:
        return part.whole
    return part.of_several if isinstance(part, CoresResource) and count > 1 else 0


def _word(family: DeviceFamily) -> Word:
    return Word(f"{family.name}: see docs/vendors.md.", lambda device: 0, lambda usage: 0)
