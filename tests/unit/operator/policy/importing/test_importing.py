"""The configuration of NVIDIA's operator becomes a policy of Purser's: the same stack, nothing dropped in silence."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples
from tests.unit.operator.crd_judge import refusals
from tests.unit.operator.policy.importing.told import node_assignments, speaks_of

from purser.operator.order import Operand
from purser.operator.policy import PolicyError, decode
from purser.operator.policy.importing import ImportResult
from purser.operator.policy.importing import import_policy as import_objects

IMAGE = {
    "repository": "r.example/x",
    "image": "i",
    "version": "1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["s"],
}
ENV = {"env": [{"name": "A", "value": "1"}]}
COMPONENT = {
    "enabled": True,
    **IMAGE,
    "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": 1}},
    "args": ["-v"],
    **ENV,
    "hostNetwork": True,
}
PROBE = {
    "initialDelaySeconds": 1,
    "timeoutSeconds": 2,
    "periodSeconds": 3,
    "successThreshold": 1,
    "failureThreshold": 5,
}
MONITOR = {
    "enabled": True,
    "interval": "30s",
    "scrapeTimeout": "10s",
    "honorLabels": True,
    "additionalLabels": {"release": "p"},
    "relabelings": [{"action": "drop"}],
}
MANAGER = {**IMAGE, **ENV}
FULL: dict[str, Any] = {
    "operator": {
        "defaultRuntime": "containerd",
        "runtimeClass": "nv",
        "initContainer": IMAGE,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "metrics": {"serviceMonitor": MONITOR},
        "use_ocp_driver_toolkit": False,
    },
    "daemonsets": {
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 9}],
        "priorityClassName": "high",
        "updateStrategy": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "3"},
        "podSecurityContext": {"runAsUser": 5},
    },
    "driver": {
        **COMPONENT,
        "useNvidiaDriverCRD": False,
        "usePrecompiled": True,
        "useOpenKernelModules": True,
        "startupProbe": PROBE,
        "livenessProbe": PROBE,
        "readinessProbe": PROBE,
        "rdma": {"enabled": True, "useHostMofed": True},
        "upgradePolicy": {
            "autoUpgrade": True,
            "maxParallelUpgrades": 2,
            "maxUnavailable": "25%",
            "waitForCompletion": {"podSelector": "a=b", "timeoutSeconds": 7},
            "podDeletion": {"force": True, "timeoutSeconds": 8, "deleteEmptyDir": True},
            "drain": {"enable": True, "force": True, "podSelector": "c=d", "timeoutSeconds": 9, "deleteEmptyDir": True},
        },
        "manager": MANAGER,
        "repoConfig": {"configMapName": "repos"},
        "certConfig": {"name": "certs"},
        "licensingConfig": {"configMapName": "old", "secretName": "new", "nlsEnabled": False},
        "virtualTopology": {"config": "topology"},
        "kernelModuleConfig": {"name": "modules"},
        "secretEnv": "secret",
    },
    "toolkit": {**COMPONENT, "installDir": "/opt/nvidia"},
    "devicePlugin": {**COMPONENT, "config": {"name": "plugin", "default": "any"}, "mps": {"root": "/run/mps"}},
    "dcgm": {**COMPONENT, "hostPort": 5555},
    "dcgmExporter": {
        **COMPONENT,
        "annotations": {"a": "b"},
        "config": {"name": "metrics"},
        "serviceMonitor": MONITOR,
        "service": {"type": "NodePort", "internalTrafficPolicy": "Local"},
        "hostPID": True,
        "hpcJobMapping": {"enabled": True, "directory": "/jobs"},
        "enablePodLabels": True,
        "enablePodUID": True,
        "podLabelAllowlistRegex": ["^a$"],
    },
    "nodeStatusExporter": COMPONENT,
    "gfd": COMPONENT,
    "mig": {"strategy": "mixed"},
    "migManager": {
        **COMPONENT,
        "config": {"name": "layouts", "default": "all-disabled"},
        "gpuClientsConfig": {"name": "clients"},
    },
    "psp": {"enabled": False},
    "psa": {"enabled": True},
    "validator": {
        **{name: value for name, value in COMPONENT.items() if name != "enabled"},
        **dict.fromkeys(("plugin", "toolkit", "driver", "cuda", "vfioPCI", "vgpuManager", "vgpuDevices"), ENV),
    },
    "gds": {"enabled": True, **IMAGE, "args": ["-x"], **ENV},
    "gdrcopy": {"enabled": True, **IMAGE, "args": ["-x"], **ENV},
    "sandboxWorkloads": {"enabled": False, "defaultWorkload": "container", "mode": "kubevirt"},
    "vfioManager": {**COMPONENT, "driverManager": MANAGER},
    "sandboxDevicePlugin": COMPONENT,
    "kataSandboxDevicePlugin": COMPONENT,
    "vgpuManager": {**COMPONENT, "driverManager": MANAGER, "kernelModuleConfig": {"name": "m"}},
    "vgpuDeviceManager": {**COMPONENT, "config": {"name": "c", "default": "d"}},
    "ccManager": {**COMPONENT, "defaultMode": "on"},
    "kataManager": {**COMPONENT, "config": {"artifactsDir": "/x"}},
    "cdi": {"enabled": True, "default": True, "nriPluginEnabled": False},
    "hostPaths": {"rootFS": "/r", "driverInstallDir": "/d", "kubeletRootDir": "/k"},
}
"""Every field of nvidia.com/v1's ClusterPolicy, each set."""


def nvidia(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": spec,
    }


def import_policy(policy: dict[str, Any], *drivers: dict[str, Any]) -> ImportResult:
    return import_objects([policy, *drivers])


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in leaves(each, (*path, name))]
    return [(path, value)]


def at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name, {}) if isinstance(value, dict) else {}
    return value


SILENT_WHERE_EMPTY = (
    *(
        "psp",
        "psa",
        "cdi",
        "operator",
        "driver",
        "migManager",
        "dcgm",
        "sandboxWorkloads",
        "vfioManager",
        "vgpuManager",
    ),
    *("sandboxDevicePlugin", "kataSandboxDevicePlugin", "vgpuDeviceManager", "ccManager", "kataManager"),
    *(("validator", name) for name in ("vfioPCI", "vgpuManager", "vgpuDevices")),
)
"""What Purser is known not to do: who asks for nothing of it loses nothing."""


def accounted(path: tuple[str, ...], value: Any, policy: dict[str, Any], lost: tuple[str, ...]) -> bool:
    """Whether a field of the old policy is in the new one, or is said to be lost."""
    if path == ("driver", "useOpenKernelModules") and isinstance(value, bool):
        modules = at(policy["spec"], ("driver", "kernelModuleType"))
        if modules == ("open" if value else "proprietary"):
            return True
    renamed = tuple("gpuPodDeletion" if name == "podDeletion" else name for name in path)
    found = at(policy["spec"], renamed)
    is_met = not value and (path[0] in SILENT_WHERE_EMPTY or path[:2] in SILENT_WHERE_EMPTY)
    return bool(found == value or str(found) == value or is_met or speaks_of(lost, "spec." + ".".join(renamed)))


def test_every_field_of_a_full_policy_is_in_the_new_one_or_in_the_list() -> None:
    imported = import_policy(nvidia(FULL))
    missing = [path for path, value in leaves(FULL) if not accounted(path, value, imported.policy, imported.lost)]
    assert missing == []
    fields = node_assignments(imported.lost)
    assert not [field for field in fields if not field.startswith("spec.")]
    assert {
        "spec.operator.defaultRuntime",
        "spec.migManager.image",
        "spec.ccManager",
    } <= fields
    assert not [
        field
        for field in fields
        if field.startswith(("spec.toolkit", "spec.devicePlugin", "spec.gfd", "spec.cdi.enabled"))
    ]


def test_the_new_policy_is_one_of_pursers() -> None:
    policy = decode(import_policy(nvidia(FULL)).policy)
    assert policy.metadata.name == "cluster-policy"
    spec = policy.spec
    assert spec.driver.upgrade_policy.gpu_pod_deletion.timeout_seconds == 8
    assert spec.driver.kernel_module_type == "open"
    assert spec.daemonsets.rolling_update.max_unavailable == 3
    assert spec.driver.resources.limits == {"cpu": "500m", "memory": "1Gi"}
    assert spec.device_plugin.flavor == "nvidia"
    assert spec.host_paths.root_fs == "/r"


def test_an_absent_field_means_what_it_meant() -> None:
    spec = decode(import_policy(nvidia({})).policy).spec
    assert Operand.DCGM in spec.enabled
    assert not spec.driver.upgrade_policy.auto_upgrade
    assert spec.device_plugin.flavor == "nvidia"
    assert spec.mig.strategy == "none"
    assert import_policy(nvidia({})).lost == ()


@pytest.mark.parametrize(
    ("spec", "events"),
    [
        ({"driver": {"upgradePolicy": {"maxUnavailable": "0%"}}}, "no node could ever be upgraded"),
        ({"migManager": {"enabled": False, "config": {"default": "all-disabled"}}}, "the MIG manager is disabled:"),
        ({"validator": {"plugin": {"env": [{"name": "WITH_WORKLOAD", "value": "true"}]}}}, "does not start a pod"),
        (
            {"driver": {"upgradePolicy": {"drain": {"podSelector": ":"}}}},
            "spec.driver.upgradePolicy.drain.podSelector: ",
        ),
        ({"dcgmExporter": {"service": {"type": "LoadBalancer"}}}, "spec.dcgmExporter.service.type: "),
        ({"driver": "all"}, "spec.driver: "),
        ({"driver": {"env": [{"value": "1"}, "x"]}}, "spec.driver.env[1]: "),
        ({"toolkit": {"holograms": {"a": [1]}}}, "spec.toolkit.holograms.a: Purser has no such setting"),
    ],
    ids=[
        "no upgrade ever",
        "MIG",
        "a workload",
        "no selector",
        "a load balancer",
        "a text",
        "variables",
        "a field nobody knows",
    ],
)
def test_what_cannot_be_imported_is_reported(spec: dict[str, Any], events: str) -> None:
    imported = import_policy(nvidia(spec))
    assert [each for each in imported.lost if events in each], imported.lost
    decode(imported.policy)


@pytest.mark.parametrize(
    ("driver", "modules", "lost"),
    [
        ({"useOpenKernelModules": True}, "open", False),
        ({"useOpenKernelModules": False}, "proprietary", False),
        ({"useOpenKernelModules": True, "kernelModuleType": "auto"}, "auto", True),
        ({}, "auto", False),
    ],
    ids=["open", "proprietary", "the newer field counts", "neither"],
)
def test_kernel_modules_are_named_in_the_newer_way(driver: dict[str, Any], modules: str, lost: bool) -> None:
    imported = import_policy(nvidia({"driver": driver}))
    assert decode(imported.policy).spec.driver.kernel_module_type == modules
    assert bool(imported.lost) is lost


def test_of_variables_with_one_name_the_last_counts() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    assert import_policy(nvidia({"toolkit": {"env": env}})).policy["spec"]["toolkit"]["env"] == [
        {"name": "A", "value": "2"}
    ]


@pytest.mark.parametrize(
    "before", [[], [{"name": "A", "value": "1"}]], ids=["alone", "after one with a value, which did not count"]
)
def test_a_variable_with_a_source_is_left_out_whole_and_not_empty(before: list[dict[str, Any]]) -> None:
    sourced = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    imported = import_policy(nvidia({"driver": {"env": [*before, sourced, {"name": "EMPTY"}]}}))
    assert imported.policy["spec"]["driver"]["env"] == [{"name": "EMPTY"}]
    why = "variable A is removed: it uses valueFrom, and Purser supports plain values only"
    assert imported.lost == (f"spec.driver.env[{len(before)}]: {why}",)


def test_what_is_left_out_because_it_contradicts_is_named_once() -> None:
    spec = {"driver": {"upgradePolicy": {"maxUnavailable": 0, "drain": {"podSelector": ":"}}}}
    assert [each.count("spec.") for each in import_policy(nvidia(spec)).lost] == [1, 1]


@pytest.mark.parametrize("raw", [{}, {"kind": "Pod"}, {"metadata": {"name": "x"}}], ids=str)
def test_what_has_no_kind_is_refused_in_words(raw: dict[str, Any]) -> None:
    what = "an object without apiVersion or kind"
    with pytest.raises(PolicyError, match=f"found {what}: expected a ClusterPolicy"):
        import_policy(raw)
    assert import_objects([nvidia({}), raw]).lost == (f"{what}: no counterpart in Purser",)


@pytest.mark.parametrize(
    "raw", [{}, {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver"}, {**nvidia({}), "spec": "x"}], ids=str
)
def test_something_else_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        import_policy(raw)


@pytest.mark.parametrize("spec", [[], "", 0, False], ids=repr)
def test_a_spec_that_is_empty_but_none_is_refused_in_words(spec: Any) -> None:
    with pytest.raises(PolicyError, match="ClusterPolicy cluster-policy: spec must be an object "):
        import_policy({**nvidia({}), "spec": spec})


@pytest.mark.parametrize("name", ["Cluster_Policy", "-a", "a..b", "a" * 254, "a\n"], ids=lambda name: name[:14])
def test_a_name_that_no_cluster_takes_is_refused_in_words(name: str) -> None:
    with pytest.raises(PolicyError, match="invalid name"):
        import_policy({**nvidia({}), "metadata": {"name": name}})


def without(spec: dict[str, Any], paths: list[tuple[str, ...]]) -> dict[str, Any]:
    found = copy.deepcopy(spec)
    for path in paths:
        parent = at(found, path[:-1])
        parent.pop(path[-1], None)
    return found


INTEGERS = st.integers(-(2**63), 2**63 - 1)
"""API servers hold no others."""
VALUES = st.one_of(st.none(), st.booleans(), INTEGERS, any_text(max_size=8), st.just([]), st.just({}), st.just(["x"]))


@examples(30)
@given(st.data())
def test_whatever_is_set_nothing_is_dropped_in_silence(data: st.DataObject) -> None:
    fields = [path for path, _ in leaves(FULL)]
    spec = without(FULL, data.draw(st.lists(st.sampled_from(fields), max_size=60, unique=True)))
    for path in data.draw(st.lists(st.sampled_from(fields), max_size=4, unique=True)):
        parent = at(spec, path[:-1])
        if path[-1] in parent:
            parent[path[-1]] = data.draw(VALUES)
    imported = import_policy(nvidia(spec))
    decode(imported.policy)
    assert refusals(copy.deepcopy(imported.policy["spec"])) == []
    for path, value in leaves(spec):
        assert value in (None, {}, []) or accounted(path, value, imported.policy, imported.lost), (path, value)
