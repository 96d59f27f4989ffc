"""NVIDIADrivers of nvidia.com/v1alpha1: the one for all nodes becomes spec.driver, the others profiles of it.

An NVIDIADriver is a whole driver; a profile differs from spec.driver in image, version and kernel modules only. What
else differs is said. Where several select a node NVIDIA's operator stops; Purser takes the first, so that is said, too.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from purser.operator.importing.driver_section import NOT_TAKEN, with_new_names
from purser.operator.importing.sections import Ledger, Raw, Reasons, section
from purser.operator.policy.decoding import in_words
from purser.operator.policy.driver import DriverSpec
from purser.operator.policy.sections import Sidecar

NOT_GIVEN = (
    "profiles do this: where it is true give the NVIDIADrivers as well, without them spec.driver is for all nodes"
)
_SIDECARS: tuple[str, ...] = ("gds", "gdrcopy")
_OF_PROFILES = ("repository", "image", "version", "kernelModuleType")
_OF_THE_POLICY = ("enabled", "upgradePolicy")
"""Of a ClusterPolicy's driver section: what counts beside NVIDIADrivers."""
_NO_EFFECT = "it had no effect, for NVIDIADrivers say it"
_FOR_ALL = "spec.daemonsets says it, for all operands"
_REASONS = Reasons(
    unknown={
        "nodeAffinity": "profiles select nodes by labels only: label those nodes, and select the label",
        **NOT_TAKEN,
        **dict.fromkeys(("labels", "annotations", "tolerations", "priorityClassName"), _FOR_ALL),
    },
)
_NOT_HERE = ("default", "driverType", "nodeSelector")
"""Of an NVIDIADriver's spec: what kind it is, and for which nodes."""


class _Driver(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIADriver, as far as Purser knows its fields."""

    name: str
    nodes: dict[str, str]
    """Labels of its nodes; empty: all."""
    body: Raw
    """As a driver section has it; gds and gdrcopy besides."""


def with_drivers(given: Raw, specs: Mapping[str, Raw], lost: Ledger) -> Raw:
    """The old policy's spec with the drivers in it, as a spec of Purser's would have them; ``specs`` by name."""
    old = given.get("driver")
    if not specs or not isinstance(old, dict) or old.get("useNvidiaDriverCRD") is not True:
        lost.lines.extend(
            f"NVIDIADriver {name}: it had no effect, the ClusterPolicy's driver.useNvidiaDriverCRD is not true"
            for name in sorted(specs)
        )
        return given
    drivers = [found for name in sorted(specs) if (found := _read(name, specs[name], lost))]
    base, others = _divided(drivers, lost)
    for each in others:
        _tell_differences(each, base, lost)
    _tell_overlaps(others, lost)
    sidecars = {name: base[name] for name in _SIDECARS if name in base}
    driver = {
        **{name: old[name] for name in _OF_THE_POLICY if name in old},
        **{name: value for name, value in base.items() if name not in _SIDECARS},
        "profiles": [_profile(each, name) for each, name in _named(others, lost)],
    }
    _tell_no_effect(given, {"driver": driver, **sidecars}, lost)
    rest = {name: value for name, value in given.items() if name not in _SIDECARS}
    return {**rest, **sidecars, "driver": driver}


# --- one of them


def _read(name: str, spec: Raw, lost: Ledger) -> _Driver | None:
    """None: it cannot be taken over at all."""
    own = Ledger(f"NVIDIADriver {name}: spec", lost.lines)
    kind = spec.get("driverType") or "gpu"
    if kind not in ("gpu", "vgpu"):
        own.lose(kind, "driverType", "the whole driver is left out, vGPU hosts are not supported")
        return None
    try:
        nodes = msgspec.convert(spec.get("nodeSelector") or {}, dict[str, str])
    except msgspec.ValidationError as error:
        own.lose(spec["nodeSelector"], "nodeSelector", f"the whole driver is left out: {in_words(error)}")
        return None
    rest = {key: value for key, value in spec.items() if key not in (*_NOT_HERE, *_SIDECARS)}
    body = section(DriverSpec, with_new_names(rest), "", _REASONS, own)
    for sidecar in _SIDECARS:
        if isinstance(given := spec.get(sidecar), dict):
            body[sidecar] = section(Sidecar, given, sidecar, _REASONS, own)
    return _Driver(name=name, nodes=nodes, body=_with_whole_image(body))


def _with_whole_image(body: Raw) -> Raw:
    """An image with its registry, beside a version: as repository and image."""
    repository, slash, image = str(body.get("image", "")).rpartition("/")
    if not slash or body.get("repository") or not body.get("version"):
        return body
    return {**body, "repository": repository, "image": image}


# --- all of them


def _divided(drivers: Collection[_Driver], lost: Ledger) -> tuple[Raw, list[_Driver]]:
    """What is for all nodes, and the drivers of some: those that ask for more labels first."""
    general = [each for each in drivers if not each.nodes]
    for each in general[1:]:
        lost.lines.append(f"NVIDIADriver {each.name}: {general[0].name} is for all nodes, too, and is taken")
    some = sorted((each for each in drivers if each.nodes), key=lambda each: (-len(each.nodes), each.name))
    if general:
        return general[0].body, some
    lost.lines.append(
        "spec.driver: nodes that no NVIDIADriver selects had no driver, and get this one:"
        " label them nvidia.com/gpu.deploy.driver=false if they shall not"
    )
    return _common([each.body for each in some]), some


def _common(bodies: list[Raw]) -> Raw:
    """What all of them say, but for images."""
    if not bodies:
        return {}
    first, *more = bodies
    return {
        name: value
        for name, value in first.items()
        if name not in _OF_PROFILES and all(each.get(name) == value for each in more)
    }


def _tell_differences(driver: _Driver, base: Raw, lost: Ledger) -> None:
    """Fields that a profile does not have, where the driver of all nodes says something else."""
    mine, all_nodes = _filled(driver.body), _filled(base)
    for name in sorted(mine):
        if name in _OF_PROFILES or mine[name] == all_nodes[name]:
            continue
        why = "a profile has no such field: spec.driver says it for all nodes, and says something else"
        Ledger(f"NVIDIADriver {driver.name}: spec", lost.lines).lose(driver.body.get(name, ""), name, why)


def _filled(body: Raw) -> Raw:
    """With what absent fields mean."""
    rest = {name: value for name, value in body.items() if name not in _SIDECARS}
    sidecars = {name: msgspec.to_builtins(msgspec.convert(body.get(name, {}), Sidecar)) for name in _SIDECARS}
    filled: Raw = msgspec.to_builtins(msgspec.convert(rest, DriverSpec))
    return {**filled, **sidecars}


def _tell_overlaps(drivers: Sequence[_Driver], lost: Ledger) -> None:
    for place, each in enumerate(drivers):
        if before := [other.name for other in drivers[:place] if _overlap(other.nodes, each.nodes)]:
            lost.lines.append(
                f"NVIDIADriver {each.name}: where {', '.join(before)} selects a node as well, that counts;"
                " NVIDIA's operator takes neither"
            )


def _overlap(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a node may have all labels of both."""
    return all(one[label] == other[label] for label in one.keys() & other.keys())


def _tell_no_effect(old: Raw, new: Raw, lost: Ledger) -> None:
    """What the ClusterPolicy says of drivers and NVIDIADrivers say otherwise."""
    for name, value in old["driver"].items():
        if name != "useNvidiaDriverCRD" and new["driver"].get(name, {}) != value:
            lost.lose(value, f"driver.{name}", _NO_EFFECT)
    for name in _SIDECARS:
        if name in old and new.get(name, {}) != old[name]:
            lost.lose(old[name], name, _NO_EFFECT)


def _named(drivers: Iterable[_Driver], lost: Ledger) -> list[tuple[_Driver, str]]:
    """With names that profiles may have, each of its own."""
    found: dict[str, _Driver] = {}
    for each in drivers:
        name = re.sub(r"[^a-z0-9-]", "-", each.name.lower())[:36].strip("-") or "driver"
        while name in found:
            number = re.search(r"-(\d+)$", name)
            name = f"{name[: number.start()]}-{int(number[1]) + 1}" if number else f"{name}-2"
        if name != each.name:
            lost.lines.append(f"NVIDIADriver {each.name}: metadata.name: its profile is {name}")
        found[name] = each
    return [(each, name) for name, each in found.items()]


def _profile(driver: _Driver, name: str) -> Raw:
    parts = {field: driver.body[field] for field in _OF_PROFILES if driver.body.get(field)}
    modules = {"kernelModuleType": driver.body.get("kernelModuleType", "auto")}
    return {"name": name, "nodeSelector": driver.nodes, **parts, **modules}
