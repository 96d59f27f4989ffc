"""Converts the configuration of NVIDIA's GPU operator to a ClusterPolicy of Purser's, with a list of what has no
counterpart.

Nothing is dropped silently: every field that is set is in the new policy, or in the list with a reason. Where an absent
field has different meanings, the new policy sets it explicitly. NVIDIADrivers become profiles.

- Here: the whole; ``drivers``: NVIDIADrivers; ``absent``: sections that Purser does not have, virtual machines first.
- ``placing``: on which nodes single operands ran; ``elsewhere``: what Purser has at another place, or by itself.
- ``effects``: settings of the new policy without effect.
- ``sections``: takes fields over one by one, and keeps the list, by what each loss does (`Rank`), the worst first.

Not here: where objects are read from (a file: the command; a cluster: ``observing``), and what becomes of labels on
nodes (``gates``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from purser.operator.names import GROUP, KIND, VERSION
from purser.operator.policy import ClusterPolicySpec, PolicyError, decode
from purser.operator.policy.decoding import is_name, problems
from purser.operator.policy.importing.absent import drop_absent_sections, report_ignored_labels
from purser.operator.policy.importing.drivers import DRIVERS_NOT_GIVEN, with_drivers
from purser.operator.policy.importing.effects import settings_without_effect
from purser.operator.policy.importing.elsewhere import with_mig_strategy, without_chart_labels
from purser.operator.policy.importing.placing import drop_placement
from purser.operator.policy.importing.sections import (
    UNSUPPORTED_FIELDS,
    Line,
    Losses,
    Rank,
    Raw,
    Reasons,
    lines,
    section,
    with_new_names,
)

# --- the whole policy


DRIVER_KIND = "NVIDIADriver"
_Object = Mapping[str, Any]


class ImportResult(msgspec.Struct, frozen=True):
    """The new policy, and what people have to know of it, in lines: each names fields and the reason."""

    policy: Raw
    losses: tuple[Line, ...]
    """What of the old objects is not in it; what matters most first."""
    idle: tuple[str, ...]
    """What is in it, and does nothing as it stands."""

    @property
    def lost(self) -> tuple[str, ...]:
        """The lines of what is lost, in order."""
        return tuple(each.text for each in self.losses)


_OTHER_IMAGE_NOTE = "Purser uses its own MIG worker instead of NVIDIA's MIG manager"
_NO_COUNTERPART = {
    "NodeMaintenance": "Purser evicts pods itself: requestor mode is not supported",
}
_REASONS = Reasons(
    unknown={
        "operator.defaultRuntime": "the runtime is detected on each node",
        "operator.initContainer": "no operand needs one",
        "operator.use_ocp_driver_toolkit": "OpenShift's driver toolkit is not supported",
        "driver.useNvidiaDriverCRD": DRIVERS_NOT_GIVEN,
        **{f"driver.{name}": why for name, why in UNSUPPORTED_FIELDS.items()},
        "psp": "Kubernetes removed PodSecurityPolicy",
        "psa": "Pod Security admission may reject operand pods; use instead: kubectl label namespace purser-system"
        " pod-security.kubernetes.io/enforce=privileged",
        "cdi.default": "cdi.enabled determines which runtime containers use",
        "cdi.nriPluginEnabled": "the NRI plugin is not supported: the toolkit configures each node's runtime instead",
        "dcgm.hostPort": "NVIDIA's operator ignores it too",
        "gfd.migStrategy": "spec.mig.strategy applies to all operands",
        "migManager.gpuClientsConfig": "host services are not stopped: only pods are evicted",
    },
    other=dict.fromkeys(
        (f"migManager.{name}" for name in ("repository", "image", "version", "args", "env")), _OTHER_IMAGE_NOTE
    ),
    ranks={
        "psa": Rank.NOT_DEPLOYED,
        "cdi.nriPluginEnabled": Rank.FEATURE,
        "migManager.gpuClientsConfig": Rank.FEATURE,
        "operator.use_ocp_driver_toolkit": Rank.FEATURE,
    },
)


def import_policy(documents: Iterable[_Object]) -> ImportResult:
    """The policy of Purser that does what these objects of NVIDIA's operator did: its ClusterPolicy and NVIDIADrivers.

    Lists of objects, as kubectl prints them, are taken apart. Of several ClusterPolicies the oldest counts, as it did
    there; its name is taken over. Raises `PolicyError` where there is none, or for an object that cannot be read.
    """
    lost = Losses("spec", [])
    documents = list(_flatten_lists(documents))
    old, drivers = _sort_objects([each for each in documents if not _is_kind(each, "v1", "Node")], lost)
    given = _renamed(_spec_of(old))
    report_ignored_labels([each for each in documents if _is_kind(each, "v1", "Node")], given, lost)
    given = drop_placement(without_chart_labels(drop_absent_sections(given, lost), lost), lost)
    given = with_mig_strategy(given)
    given = with_drivers(given, {_name(each): _spec_of(each) for each in drivers}, lost)
    spec = section(ClusterPolicySpec, given, "", _REASONS, lost)
    _set_differing_defaults(spec, lost)
    policy = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": _validated_name(old)},
        "spec": spec,
    }
    fields_without_effect = tuple(each.text for each in lines(settings_without_effect(spec, decode(policy).spec)))
    return ImportResult(policy, lines(lost.losses), fields_without_effect)


# --- which objects


def _flatten_lists(documents: Iterable[_Object]) -> Iterator[_Object]:
    for document in documents:
        items = document.get("items")
        if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from _flatten_lists(each for each in items if isinstance(each, Mapping))
        else:
            yield document


def _sort_objects(objects: list[_Object], lost: Losses) -> tuple[_Object, list[_Object]]:
    """The active policy and the drivers; the others are reported: they have no effect."""
    policies = sorted((each for each in objects if _is_kind(each, "nvidia.com/v1", KIND)), key=_age)
    drivers = [each for each in objects if _is_kind(each, "nvidia.com/v1alpha1", DRIVER_KIND)]
    if not policies:
        kinds = ", ".join(map(_object_name, objects)) or "nothing"
        raise PolicyError(f"found {kinds}: expected a ClusterPolicy of nvidia.com/v1")
    names = [_name(each) for each in drivers]
    for name in {name for name in names if names.count(name) > 1}:
        lost.note(f"{DRIVER_KIND} {name}", "defined more than once: the last definition is used", Rank.RUNS_DIFFERENTLY)
    for each in policies[1:]:
        lost.note(f"{KIND} {_name(each)}", f"it had no effect because {_name(policies[0])} is older", Rank.OFF)
    for each in objects:
        if each not in policies and each not in drivers:
            lost.note(
                _object_name(each), _NO_COUNTERPART.get(str(each.get("kind")), "no counterpart in Purser"), Rank.FEATURE
            )
    return policies[0], drivers


def _is_kind(each: _Object, version: str, kind: str) -> bool:
    return (each.get("apiVersion"), each.get("kind")) == (version, kind)


def _age(policy: _Object) -> tuple[str, str]:
    metadata = policy.get("metadata")
    created = metadata.get("creationTimestamp") if isinstance(metadata, Mapping) else None
    return str(created or "~"), _name(policy)


def _spec_of(raw: _Object) -> Raw:
    spec = raw.get("spec")
    if spec is None:
        return {}
    if not isinstance(spec, dict):
        raise PolicyError(f"{raw['kind']} {_name(raw)}: spec must be an object but is of type {type(spec).__name__}")
    return spec


def _validated_name(raw: _Object) -> str:
    """The name that the new policy gets, too. Raises `PolicyError` for one that no API server takes."""
    name = _name(raw)
    if not is_name(name):
        raise PolicyError(f"{raw['kind']} {name}: invalid name: use lowercase letters, digits, - and .")
    return name


def _name(raw: _Object) -> str:
    return _given_name(raw) or "cluster-policy"


def _given_name(raw: _Object) -> str:
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def _object_name(raw: _Object) -> str:
    """``v1 Pod a``."""
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not version or not kind:
        return "an object without apiVersion or kind"
    return f"{version} {kind} {_given_name(raw)}".rstrip()


# --- names and values that are others


def _renamed(given: Raw) -> Raw:
    """With Purser's names where they differ.

    NVIDIA's operator reads `useOpenKernelModules` only in versions that know no `kernelModuleType`: beside that it
    stays where it is, as an unknown field.
    """
    driver = given.get("driver")
    if not isinstance(driver, dict):
        return given
    driver = with_new_names(driver)
    if driver.get("kernelModuleType") is None and isinstance(driver.get("useOpenKernelModules"), bool):
        driver["kernelModuleType"] = "open" if driver.pop("useOpenKernelModules") else "proprietary"
    return {**given, "driver": driver}


def _set_differing_defaults(spec: Raw, lost: Losses) -> None:
    """Where Purser's default is another one, in place."""
    spec.setdefault("devicePlugin", {})["flavor"] = "nvidia"
    spec.setdefault("dcgm", {}).setdefault("enabled", True)
    spec.setdefault("driver", {}).setdefault("upgradePolicy", {}).setdefault("autoUpgrade", False)
    spec.setdefault("mig", {}).setdefault("strategy", "none")
    _drop_workload(spec, lost)
    _drop_contradictions(spec, lost)


def _drop_workload(spec: Raw, lost: Losses) -> None:
    plugin = spec.get("validator", {}).get("plugin", {})
    if {"name": "WITH_WORKLOAD", "value": "true"} in plugin.get("env", []):
        lost.drop(
            True, "validator.plugin.env", "the device plugin check does not start a pod, so WITH_WORKLOAD is removed"
        )
        plugin["env"] = [each for each in plugin["env"] if each["name"] != "WITH_WORKLOAD"]


def _drop_contradictions(spec: Raw, lost: Losses) -> None:
    """What NVIDIA's operator takes and Purser's refuses, because it can never be; each problem names its field."""
    while found := problems(msgspec.convert(spec, ClusterPolicySpec)):
        place = re.match(r"spec\.([A-Za-z.]+)(?:\[(\d+)\])?", found[0])
        *parents, name = place[1].split(".") if place else [""]
        at: Raw = spec
        for each in parents:
            at = at.get(each, {})
        if place is None or name not in at:
            raise PolicyError(found[0])
        where = ".".join([*parents, name])
        if place[2] and isinstance(at[name], list):
            item = at[name].pop(int(place[2]))
            where = f"{where}[{place[2]}]"
            named = f"profile {item['name']} is removed" if "name" in item else "removed"
            lost.drop_section(where, f"{named}: {found[0]}", Rank.RUNS_DIFFERENTLY)
            continue
        del at[name]
        why = found[0].replace(f"spec.{where} is ", "it is ", 1).removeprefix(f"spec.{where}: ")
        rank = Rank.RUNS_DIFFERENTLY if name == "profiles" else Rank.SETTING
        lost.drop_section(where, f"removed: {why}", rank)
