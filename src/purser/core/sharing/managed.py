"""Names by the device plugin's file, or of MIG profiles that are not known, about which kube-scheduler does not ask
Purser.

Who asks for one alone is placed without a grant, and no container of the pod starts. So such devices are not listed.
"""

from collections.abc import Callable, Iterable, Iterator

from purser.core.dialects.managed import MANAGED_VALUE
from purser.core.sharing.advertised import MAX_MISSING_SHOWN, AdvertisedDevice, active
from purser.core.sharing.file import FILE, PluginFile
from purser.core.sharing.words import SharingStrategy


def named_resources(file: PluginFile) -> frozenset[str]:
    """The names that the file gives devices, beside those that they have by themselves."""
    return frozenset(name for _, name in _entries(file))


def managed_devices(
    found: Iterable[AdvertisedDevice], file: PluginFile, is_managed: Callable[[str], bool], problems: list[str]
) -> tuple[AdvertisedDevice, ...]:
    """The devices whose names kube-scheduler asks about; of the others a sentence per name goes to ``problems``."""
    kept, left_out = [], dict[str, list[str]]()
    for each in found:
        if is_managed(each.resource):
            kept.append(each)
        else:
            left_out.setdefault(each.resource, []).append(each.index)
    by_name = {name: where for where, name in reversed(tuple(_entries(file)))}
    for name, indexes in left_out.items():
        listed = f"{FILE}: {by_name[name]} gives" if name in by_name else "The MIG profile gives"
        devices = f"device{'s' * (len(indexes) > 1)} {', '.join(indexes[:MAX_MISSING_SHOWN])}"
        problems.append(
            f"{listed} {devices} the name {name}, about which kube-scheduler does not ask Purser: add this name to the "
            f"chart value {MANAGED_VALUE}, or use another name. Until then, the node does not list the resource"
        )
    return tuple(kept)


def _entries(file: PluginFile) -> Iterator[tuple[str, str]]:
    """Each name, and where the file says it."""
    for kind, rules in (("gpus", file.resources.gpus), ("mig", file.resources.mig)):
        for place, rule in enumerate(rules):
            yield f"resources.{kind}[{place}]", rule.name
    way, replicas = active(file.sharing)
    if replicas is None:
        return
    for entry in replicas.resources:
        key = "mps" if way is SharingStrategy.MPS else "timeSlicing"
        yield f"sharing.{key}.resources[{entry.place}]", replicas.advertised_as(entry)
