"""Nothing is taken over and then does nothing in silence: each field changes a manifest, or a line names it."""

import json
from functools import cache
from typing import Any

import pytest
from tests.tiers import some
from tests.unit.operator.manifests.wanteds import pool, rendered
from tests.unit.operator.policy.importing.told import speaks_of

from purser.operator.model import Pool, RenderedManifest, RuntimeKind
from purser.operator.policy.importing import ImportResult, import_policy

from .test_importing import FULL, at, leaves, nvidia
from .test_importing_drivers import NEW_NAMES, WHOLE, driver

KINDS = (RuntimeKind("containerd"),)
POOLS = (pool("a"), pool("b", os_id="rhel", os_version="9", profile="p"))
WORDS = {
    "imagePullPolicy": "Never",
    "strategy": "single",
    "kernelModuleType": "proprietary",
    "type": "ClusterIP",
    "internalTrafficPolicy": "Cluster",
    "maxUnavailable": "40%",
    "operator": "Exists",
}
OTHERS = {"500m": "501m", "1Gi": "2Gi", "OnDelete": "RollingUpdate", "RollingUpdate": "OnDelete"}
"""Other values of fields that take some words only."""
DECIDES = ("driver.upgradePolicy", "migManager.config.default", "driver.useNvidiaDriverCRD")
"""What the operator goes by itself: no manifest has it."""
NOT_HERE = ("sandbox", "useOpen", "vfio", "vgpu", "kata", "ccManager", "psp", "psa")


def objects(policy: dict[str, Any], drivers: dict[str, Any] | None) -> list[dict[str, Any]]:
    if drivers is None:
        return [nvidia(policy)]
    section = {**policy["driver"], "useNvidiaDriverCRD": True}
    theirs = driver("p", nodeSelector={"a": "b"}, **drivers)
    return [nvidia({**policy, "driver": section}), driver("all"), theirs]


def manifests(imported: ImportResult, pools: tuple[Pool, ...]) -> tuple[RenderedManifest, ...]:
    return rendered(imported.policy["spec"], pools=pools, runtimes=KINDS)


def differs(befores: list[tuple[RenderedManifest, ...]], after: ImportResult) -> bool:
    """Whether a manifest does; most do for the first pool already."""
    return any(manifests(after, pools) != before for pools, before in zip((POOLS[:1], POOLS), befores, strict=True))


def another(path: tuple[str, ...], value: Any) -> Any:
    """Another value of the field."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return [f"{each}9" for each in value if isinstance(each, str)]
    if path[-1] == "maxUnavailable":
        return WORDS["maxUnavailable"]
    return WORDS.get(path[-1]) or OTHERS.get(value) or f"{value}9"


def with_value(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(spec))  # a deep copy would share what the constants share
    at(found, path[:-1])[path[-1]] = value
    return found


def wrong(policy: dict[str, Any], areas: tuple[str, ...], drivers: dict[str, Any] | None = None) -> list[str]:
    """Fields below ``areas`` that do nothing in silence, or of which it is said though they do something."""
    before = import_policy(objects(policy, drivers))
    whole = policy if drivers is None else drivers
    whose = "spec" if drivers is None else "NVIDIADriver p: spec"
    befores = [manifests(before, pools) for pools in (POOLS[:1], POOLS)]
    named = [(".".join(path), path, value) for path, value in leaves(whole)]
    fields = [each for each in named if each[0].startswith(areas) and not each[0].startswith((*DECIDES, *NOT_HERE))]
    found = []
    for name, path, value in some(fields, 4):
        changed = with_value(whole, path, another(path, value))
        after = import_policy(objects(changed, None) if drivers is None else objects(policy, changed))
        told = [is_told([*each.lost, *each.idle], whose, renamed(name)) for each in (before, after)]
        works = differs(befores, after)
        if (works and all(told)) or not (works or any(told)):
            found.append(f"{name}: {'it is said to do nothing' if works else 'it does nothing'}")
    return found


def renamed(name: str) -> str:
    for old, new in {**NEW_NAMES, "podDeletion": "gpuPodDeletion"}.items():
        name = name.replace(old, new) if name.startswith(old) else name
    return name


def is_told(lines: list[str], whose: str, name: str) -> bool:
    return any(speaks_of(lines, f"{place}.{name}") for place in (whose, "spec.driver.profiles[0]"))


@cache
def everything() -> dict[str, Any]:
    """All on, and nothing that contradicts: useOpenKernelModules would count instead of kernelModuleType."""
    spec: dict[str, Any] = json.loads(json.dumps(FULL))
    del spec["driver"]["useOpenKernelModules"]
    spec["driver"].update(kernelModuleType="open", usePrecompiled=False)
    spec["daemonsets"]["labels"] = {"team": "a"}
    return spec


@pytest.mark.parametrize(
    "area",
    ["operator", "daemonsets", "driver", "gd", "toolkit", "devicePlugin", "dcgm", "node", "mig", "v", "cdi", "h"],
)
def test_where_all_is_on_every_field_changes_a_manifest_or_is_reported(area: str) -> None:
    assert wrong(everything(), (area,)) == []


@pytest.mark.gate
@pytest.mark.parametrize(
    ("off", "areas"),
    [
        ({"driver": {"enabled": False}}, ("driver", "gd", "hostPaths")),
        ({"toolkit": {"enabled": False}}, ("toolkit",)),
        ({"devicePlugin": {"enabled": False}}, ("devicePlugin", "cdi")),
        ({"devicePlugin": {"enabled": False}, "gfd": {"enabled": False}}, ("devicePlugin",)),
        ({"dcgm": {"enabled": False}, "dcgmExporter": {"enabled": False}}, ("dcgm",)),
        ({"nodeStatusExporter": {"enabled": False}}, ("nodeStatusExporter", "operator.metrics")),
        ({"migManager": {"enabled": False, "config": {"default": ""}}}, ("migManager",)),
        ({"gds": {"enabled": False}, "gdrcopy": {"enabled": False}}, ("gd",)),
        ({"gfd": {"enabled": False}}, ("gfd", "mig.")),
        ({"driver": {"rdma": {"enabled": False}}}, ("driver.rdma",)),
        ({"driver": {"usePrecompiled": True}}, ("driver.repo", "driver.cert")),
        ({"driver": {"licensingConfig": {"secretName": ""}}}, ("driver.licensing",)),
        ({"driver": {"licensingConfig": {"secretName": "", "configMapName": ""}}}, ("driver.licensing",)),
        ({"devicePlugin": {"config": {"name": ""}}}, ("devicePlugin.config",)),
        ({"devicePlugin": {"enabled": False, "config": {"name": ""}}}, ("devicePlugin.",)),
        ({"daemonsets": {"updateStrategy": "OnDelete"}}, ("daemonsets",)),
        ({"dcgmExporter": {"serviceMonitor": {"enabled": False}}}, ("dcgmExporter",)),
        ({"operator": {"metrics": {"serviceMonitor": {"enabled": False}}}}, ("operator",)),
        ({"dcgmExporter": {"hpcJobMapping": {"enabled": False}}}, ("dcgmExporter.hpc",)),
        ({"cdi": {"enabled": False}}, ("cdi", "toolkit", "devicePlugin")),
    ],
    ids=str,
)
def test_what_is_off_does_nothing_and_is_reported(off: dict[str, Any], areas: tuple[str, ...]) -> None:
    assert wrong(merged(everything(), off), areas) == []


@pytest.mark.gate
@pytest.mark.parametrize(
    "off",
    [
        {},
        {"usePrecompiled": True},
        {"rdma": {"enabled": False}},
        {"gds": {"enabled": False}, "gdrcopy": {"enabled": False}, "licensingConfig": {"secretName": "", "name": ""}},
    ],
    ids=str,
)
def test_the_same_holds_of_a_driver_of_some_nodes(off: dict[str, Any]) -> None:
    mine = merged({name: value for name, value in WHOLE.items() if name != "usePrecompiled"}, off)
    assert wrong(everything(), ("",), mine) == []


def merged(value: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    found = dict(value)
    for name, each in more.items():
        found[name] = merged(found.get(name, {}), each) if isinstance(each, dict) else each
    return found


def test_fields_that_do_nothing_stay_in_the_policy_and_are_reported_with_the_reason() -> None:
    spec = {"driver": {"enabled": False, "version": "1"}, "dcgmExporter": {"serviceMonitor": {"interval": "1m"}}}
    imported = import_policy([nvidia(spec)])
    assert imported.lost == ()
    assert imported.policy["spec"]["driver"]["version"] == "1"
    assert imported.idle == (
        "spec.dcgmExporter.serviceMonitor.interval: dcgmExporter.serviceMonitor.enabled is not true",
        "spec.driver: disabled: their fields take effect once they are enabled",
    )


def test_what_counts_of_a_section_that_is_off_is_not_reported() -> None:
    section = {"enabled": False, "version": "1", "upgradePolicy": {"maxUnavailable": 2, "autoUpgrade": True}}
    assert import_policy([nvidia({"driver": section})]).idle == (
        "spec.driver.version: takes effect once driver.enabled is true",
    )


def test_an_upgrade_that_never_happens_needs_no_bounds_but_those_that_mig_changes_have() -> None:
    bounds = {"maxParallelUpgrades": 3, "maxUnavailable": 2, "gpuPodDeletion": {"force": True}}
    imported = import_policy([nvidia({"driver": {"upgradePolicy": {"autoUpgrade": False, **bounds}}})])
    assert [each.partition(":")[0] for each in imported.idle] == ["spec.driver.upgradePolicy.maxParallelUpgrades"]
