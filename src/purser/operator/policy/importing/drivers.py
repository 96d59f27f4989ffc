"""NVIDIADrivers of nvidia.com/v1alpha1: the one for all nodes becomes spec.driver, the others profiles of it.

An NVIDIADriver is a whole driver; its profile says in what it differs from spec.driver. Upgrades alone are the same for
all nodes. Where several select a node NVIDIA's operator stops; Purser takes the first, so that is said.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from purser.operator.policy.decoding import describe_error
from purser.operator.policy.driver import SIDECARS, DriverSpec
from purser.operator.policy.fields import Sidecar
from purser.operator.policy.importing.sections import (
    UNKNOWN,
    UNSUPPORTED_FIELDS,
    Losses,
    Rank,
    Raw,
    Reasons,
    section,
    with_new_names,
)

DRIVERS_NOT_GIVEN = (
    "profiles replace it: if it is true, import the NVIDIADrivers too, or spec.driver will apply to all nodes"
)
_IMAGE_FIELDS = ("repository", "image", "version")
_FLEET_FIELDS = ("enabled", "profiles", "requirements", "upgradePolicy")
"""Of spec.driver: what no profile has."""
_POLICY_FIELDS = ("enabled", "upgradePolicy")
"""Of a ClusterPolicy's driver section: what counts beside NVIDIADrivers."""
_VALUES_WHERE_ABSENT = {
    "imagePullPolicy": "IfNotPresent",
    "priorityClassName": "system-node-critical",
    "podSecurityContext": {},
}
"""What NVIDIA's operator does where an NVIDIADriver is silent, and others would be heard in Purser's policy."""
_NO_EFFECT = "it had no effect because NVIDIADrivers override it"
_REASONS = Reasons(
    unknown={"nodeAffinity": "NVIDIA's operator ignores it too", **UNSUPPORTED_FIELDS},
    other=dict.fromkeys(("enabled", "profiles", "requirements"), UNKNOWN),
)
_FIELDS_NOT_IN_PROFILES = ("default", "driverType", "nodeSelector")
"""Of an NVIDIADriver's spec: what kind it is, and for which nodes."""


class _Driver(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIADriver, as far as Purser knows its fields."""

    name: str
    nodes: dict[str, str]
    """Labels of its nodes; empty: all."""
    body: Raw
    """As a driver section has it; gds and gdrcopy besides."""


def with_drivers(given: Raw, specs: Mapping[str, Raw], lost: Losses) -> Raw:
    """The old policy's spec with the drivers in it, as a spec of Purser's would have them; ``specs`` by name."""
    old = given.get("driver")
    if not specs or not isinstance(old, dict) or old.get("useNvidiaDriverCRD") is not True:
        for name in specs:
            why = "it had no effect because the ClusterPolicy's driver.useNvidiaDriverCRD is not true"
            lost.note(f"NVIDIADriver {name}", why, Rank.OFF)
        return given
    drivers = [found for name in sorted(specs) if (found := _read(name, specs[name], lost))]
    base, others = _divide_drivers(drivers, lost)
    if "upgradePolicy" in base:
        base = {**base, "upgradePolicy": {"autoUpgrade": True, **base["upgradePolicy"]}}
    for each in others:
        _report_other_upgrades(each, base, lost)
    _report_overlaps(others, lost)
    sidecars = {name: base[name] for name in SIDECARS if name in base}
    driver = {
        **{name: old[name] for name in _POLICY_FIELDS if name in old},
        **_fields_of_daemonsets(base, given.get("daemonsets")),
        **{name: value for name, value in base.items() if name not in SIDECARS},
        "profiles": [_profile(each, name, base) for each, name in _named(others, lost)],
    }
    _report_no_effect(given, {"driver": driver, **sidecars}, lost)
    rest = {name: value for name, value in given.items() if name not in SIDECARS}
    return {**rest, **sidecars, "driver": driver}


# --- one of them


def _read(name: str, spec: Raw, lost: Losses) -> _Driver | None:
    """None: it cannot be taken over at all."""
    own = Losses(f"NVIDIADriver {name}: spec", lost.losses)
    kind = spec.get("driverType") or "gpu"
    if kind not in ("gpu", "vgpu"):
        own.drop_section(
            "driverType", "this NVIDIADriver is not imported: vGPU hosts are not supported", Rank.NOT_DEPLOYED
        )
        return None
    try:
        nodes = msgspec.convert(spec.get("nodeSelector") or {}, dict[str, str])
    except msgspec.ValidationError as error:
        own.drop_section(
            "nodeSelector", f"this NVIDIADriver is not imported: {describe_error(error)}", Rank.NOT_DEPLOYED
        )
        return None
    rest = {key: value for key, value in spec.items() if key not in (*_FIELDS_NOT_IN_PROFILES, *SIDECARS)}
    body = section(DriverSpec, with_new_names(rest), "", _REASONS, own)
    for sidecar in SIDECARS:
        if isinstance(given := spec.get(sidecar), dict):
            body[sidecar] = section(Sidecar, given, sidecar, _REASONS, own)
    return _Driver(name=name, nodes=nodes, body=_split_image(body))


def _split_image(body: Raw) -> Raw:
    """An image with its registry, beside a version: as repository and image."""
    repository, slash, image = str(body.get("image", "")).rpartition("/")
    if not slash or body.get("repository") or not body.get("version"):
        return body
    return {**body, "repository": repository, "image": image}


# --- all of them


def _divide_drivers(drivers: Collection[_Driver], lost: Losses) -> tuple[Raw, list[_Driver]]:
    """What is for all nodes, and the drivers of some: those that ask for more labels first."""
    general = [each for each in drivers if not each.nodes]
    for each in general[1:]:
        why = f"{general[0].name} also selects all nodes and is used instead"
        lost.note(f"NVIDIADriver {each.name}", why, Rank.RUNS_DIFFERENTLY)
    some = sorted((each for each in drivers if each.nodes), key=lambda each: (-len(each.nodes), each.name))
    if general:
        return general[0].body, some
    why = (
        "nodes that no NVIDIADriver selects had no driver and now get this driver:"
        " to prevent this, label the nodes nvidia.com/gpu.deploy.driver=false"
    )
    lost.note("spec.driver", why, Rank.RUNS_DIFFERENTLY)
    return _common_fields([each.body for each in some]), some


def _common_fields(bodies: list[Raw]) -> Raw:
    """What all of them say, but for images."""
    if not bodies:
        return {}
    first, *more = bodies
    return {
        name: value
        for name, value in first.items()
        if name not in (*_IMAGE_FIELDS, "kernelModuleType") and all(each.get(name) == value for each in more)
    }


def _report_other_upgrades(driver: _Driver, base: Raw, lost: Losses) -> None:
    """How its nodes are upgraded is not theirs any more."""
    is_same = (
        "upgradePolicy" in base
        and _fill_defaults(driver.body)["upgradePolicy"] == _fill_defaults(base)["upgradePolicy"]
    )
    if "upgradePolicy" in driver.body and not is_same:
        why = "spec.driver.upgradePolicy applies to all nodes and is different"
        own = Losses(f"NVIDIADriver {driver.name}: spec", lost.losses)
        own.drop_section("upgradePolicy", why, Rank.FEATURE)


def _fields_of_daemonsets(base: Raw, common: Any) -> Raw:
    """Of the driver for all nodes: what spec.daemonsets says of all operands, and never said of NVIDIADrivers."""
    names = ("priorityClassName", "podSecurityContext")
    given = common if isinstance(common, dict) else {}
    return {name: _VALUES_WHERE_ABSENT[name] for name in names if given.get(name) and not base.get(name)}


def _fill_defaults(body: Raw) -> Raw:
    """With what absent fields mean."""
    rest = {name: value for name, value in body.items() if name not in SIDECARS}
    sidecars = {name: msgspec.to_builtins(msgspec.convert(body.get(name, {}), Sidecar)) for name in SIDECARS}
    filled: Raw = msgspec.json.decode(msgspec.json.encode(msgspec.convert(rest, DriverSpec)))
    return {**filled, **sidecars}


def _report_overlaps(drivers: Sequence[_Driver], lost: Losses) -> None:
    for place, each in enumerate(drivers):
        if before := [other.name for other in drivers[:place] if _overlap(other.nodes, each.nodes)]:
            others = " or ".join(filter(None, (", ".join(before[:-1]), before[-1])))
            why = f"if {others} selects the same node, that driver is used; NVIDIA's operator would use neither"
            lost.note(f"NVIDIADriver {each.name}", why, Rank.RUNS_DIFFERENTLY)


def _overlap(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a node may have all labels of both."""
    return all(one[label] == other[label] for label in one.keys() & other.keys())


def _report_no_effect(old: Raw, new: Raw, lost: Losses) -> None:
    """What the ClusterPolicy says of drivers and NVIDIADrivers say otherwise."""
    given = {f"driver.{name}": value for name, value in old["driver"].items() if name != "useNvidiaDriverCRD"}
    given |= {name: old[name] for name in SIDECARS if name in old}
    now = {**{f"driver.{name}": value for name, value in new["driver"].items()}, **new}
    unheard = [f"{lost.prefix}.{name}" for name, value in given.items() if now.get(name, {}) != value]
    if unheard:
        lost.note(", ".join(unheard), _NO_EFFECT, Rank.OFF)


def _named(drivers: Iterable[_Driver], lost: Losses) -> list[tuple[_Driver, str]]:
    """With names that profiles may have, each of its own."""
    found: dict[str, _Driver] = {}
    for each in drivers:
        name = re.sub(r"[^a-z0-9-]", "-", each.name.lower())[:36].strip("-") or "driver"
        while name in found:
            number = re.search(r"-(\d+)$", name)
            name = f"{name[: number.start()]}-{int(number[1]) + 1}" if number else f"{name}-2"
        if name != each.name:
            lost.note(f"NVIDIADriver {each.name}: metadata.name", f"the profile is named {name}")
        found[name] = each
    return [(each, name) for name, each in found.items()]


def _profile(driver: _Driver, name: str, base: Raw) -> Raw:
    """What it says otherwise than spec.driver; its image and modules whole, for people to see."""
    body, mine, all_nodes = driver.body, _fill_defaults(driver.body), _fill_defaults(base)
    images = {field: body[field] for field in _IMAGE_FIELDS if body.get(field)}
    modules = {"kernelModuleType": body.get("kernelModuleType", "auto")}
    others = mine.keys() - {*_IMAGE_FIELDS, *modules, *_FLEET_FIELDS}
    differing = {field: _value_of(body, field, mine) for field in sorted(others) if mine[field] != all_nodes[field]}
    return {"name": name, "nodeSelector": driver.nodes, **images, **modules, **differing}


def _value_of(body: Raw, field: str, filled: Raw) -> Any:
    """A field as a profile says it: one that is absent takes away what spec.driver has."""
    if body.get(field):
        return body[field]
    return _VALUES_WHERE_ABSENT.get(field, {} if isinstance(filled[field], dict) else filled[field])
