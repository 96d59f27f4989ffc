"""Manifests of every kind of policy: they fit the API's schemas, belong together, and carry what the kernel reads."""

import json
import random
import warnings
from copy import deepcopy
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
from tests.tiers import some
from tests.unit.operator.sections import SECTIONS, all_operands

from purser.core.names import POOL_LABEL
from purser.lab.apiserver.defaults import BY_STORAGE
from purser.operator.manifests.objects import MONITORS, OWNED_KINDS, difference, removal
from purser.operator.manifests.parts import hashed
from purser.operator.model import ObjectKey, RenderedManifest
from purser.operator.names import (
    APPLIED_HASH_ANNOTATION,
    DRIVER_CONFIG_LABEL,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    OPERAND_LABEL,
    RUNTIME_LABEL,
    TEMPLATE_LABEL,
)
from purser.operator.order import Operand

from .wanteds import EVERYTHING, IMAGE, KINDS, NAMESPACE, POOLS, SPECS, container, daemon_set, pool, rendered, variables

NEWEST = "1.37"
VERSIONS = [*((name, NEWEST) for name in SPECS), *(("everything on", version) for version in ("1.25", "1.28", "1.32"))]
EVERY = {"pools": POOLS, "runtimes": KINDS}
FILL_IN = {name.partition(".")[0]: defaults for name, defaults in BY_STORAGE.items()}


@cache
def everything_of(name: str) -> tuple[RenderedManifest, ...]:
    """All manifests of one of `SPECS`, for all pools and kinds of runtime; nobody writes into them."""
    return rendered(SPECS[name], **EVERY)


def sets(found: tuple[RenderedManifest, ...]) -> list[dict[str, Any]]:
    return [dict(each.object) for each in found if each.object["kind"] == "DaemonSet"]


@pytest.mark.usefixtures("schemas_read_once")
@pytest.mark.parametrize(("name", "version"), some(VERSIONS, 7))
def test_every_object_fits_the_schema_of_the_kubernetes_version(name: str, version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for each in everything_of(name):
            if not each.object["apiVersion"].startswith("monitoring.coreos.com/"):
                kubernetes_validate.validate(dict(each.object), version, strict=True)


@pytest.mark.parametrize("name", list(SPECS))
def test_what_a_server_fills_in_is_no_drift_and_stays(name: str) -> None:
    for each in everything_of(name):
        live = deepcopy(dict(each.object))
        FILL_IN.get(f"{live['kind'].lower()}s", bool)(live)
        assert (difference(live, each.object), removal(live, each.object)) == ([], {})


def test_every_kind_that_is_rendered_is_a_kind_that_the_operator_owns() -> None:
    """And the reverse: nothing is followed that is never there."""
    every = [each.object for name in SPECS for each in everything_of(name)]
    kinds = {(each["apiVersion"], each["kind"], "namespace" in each["metadata"]) for each in every}
    assert kinds == {(each.api_version, each.kind, each.namespaced) for each in (*OWNED_KINDS, *MONITORS)}


@pytest.mark.parametrize("name", SPECS)
def test_every_object_has_owner_labels_and_hash_and_a_name_of_its_own(name: str) -> None:
    found = everything_of(name)
    keys = [ObjectKey.of(each.object) for each in found]
    assert len(keys) == len(set(keys))
    for each in found:
        metadata = each.object["metadata"]
        assert metadata["ownerReferences"][0]["uid"] == "u-1"
        assert metadata["ownerReferences"][0]["controller"] is True
        assert metadata["labels"][MANAGED_BY_LABEL] == FIELD_MANAGER
        assert metadata["labels"][OPERAND_LABEL] == each.operand
        assert len(metadata["annotations"][APPLIED_HASH_ANNOTATION]) == 16
        assert metadata.get("namespace", NAMESPACE) == NAMESPACE
        assert len(metadata["name"]) <= 63


@pytest.mark.parametrize("operand", list(Operand))
def test_every_operand_that_is_enabled_has_a_daemon_set_and_no_other(operand: Operand) -> None:
    alone = all_operands(enabled=False) | {SECTIONS[operand]: {"enabled": True}}
    found = sets(rendered(alone, **EVERY))
    assert {each["metadata"]["labels"][OPERAND_LABEL] for each in found} & set(Operand) == {operand}


@pytest.mark.parametrize("name", SPECS)
def test_daemon_sets_select_their_own_pods_and_no_others(name: str) -> None:
    found = sets(everything_of(name))
    for obj in found:
        spec = obj["spec"]
        labels = spec["template"]["metadata"]["labels"]
        selector = spec["selector"]["matchLabels"].items()
        assert selector <= labels.items()
        assert labels[TEMPLATE_LABEL] == obj["metadata"]["labels"][TEMPLATE_LABEL]
        others = [other["spec"]["template"]["metadata"]["labels"] for other in found if other is not obj]
        assert not [other for other in others if selector <= other.items()]


@pytest.mark.parametrize("name", SPECS)
def test_volumes_have_one_source_and_are_all_mounted(name: str) -> None:
    for obj in sets(everything_of(name)):
        pod = obj["spec"]["template"]["spec"]
        containers = [*pod.get("initContainers", []), *pod["containers"]]
        mounted = {mount["name"] for each in containers for mount in each.get("volumeMounts", [])}
        names = [volume["name"] for volume in pod.get("volumes", [])]
        assert sorted(names) == sorted(mounted)
        for each in containers:
            node_assignments = [mount["mountPath"] for mount in each.get("volumeMounts", [])]
            assert len(node_assignments) == len(set(node_assignments)), (obj["metadata"]["name"], each["name"])
            variables = [variable["name"] for variable in each.get("env", [])]
            assert len(variables) == len(set(variables))


@pytest.mark.parametrize("name", SPECS)
def test_every_account_that_a_pod_has_is_made(name: str) -> None:
    found = everything_of(name)
    accounts = {each.object["metadata"]["name"] for each in found if each.object["kind"] == "ServiceAccount"}
    used = {obj["spec"]["template"]["spec"].get("serviceAccountName") for obj in sets(found)} - {None}
    assert used == accounts


def test_a_node_gets_an_operand_by_its_label() -> None:
    for obj in sets(rendered(EVERYTHING, **EVERY)):
        operand = obj["metadata"]["labels"][OPERAND_LABEL]
        selector = obj["spec"]["template"]["spec"]["nodeSelector"]
        if operand in list(Operand):
            assert selector[Operand(operand).deploy_label] == "true"
        assert selector["kubernetes.io/os"] == "linux"


def test_each_pool_and_each_kind_of_runtime_has_its_own() -> None:
    found = sets(rendered(EVERYTHING, **EVERY))
    by_operand: dict[str, list[dict[str, Any]]] = {}
    for obj in found:
        by_operand.setdefault(obj["metadata"]["labels"][OPERAND_LABEL], []).append(obj["spec"])
    pools = [spec["template"]["spec"]["nodeSelector"][POOL_LABEL] for spec in by_operand[Operand.DRIVER]]
    assert pools == ["a", "b", "c"]
    for operand in (Operand.TOOLKIT, Operand.DEVICE_PLUGIN, Operand.VALIDATOR, Operand.DCGM_EXPORTER):
        kinds = [spec["template"]["spec"]["nodeSelector"][RUNTIME_LABEL] for spec in by_operand[operand]]
        assert kinds == [kind.label for kind in KINDS]


def test_a_pool_or_runtime_that_joins_changes_nothing_else() -> None:
    before = {ObjectKey.of(each.object): each.object for each in rendered()}
    after = {ObjectKey.of(each.object): each.object for each in rendered(**EVERY)}
    assert len(after) > len(before)
    assert {key: after[key] for key in before} == before


def test_a_disabled_operand_has_nothing() -> None:
    for operand, section in (("driver", "driver"), ("mig-manager", "migManager"), ("device-plugin", "devicePlugin")):
        assert not [each for each in rendered({section: {"enabled": False}}) if each.operand == operand]


def test_the_driver_is_replaced_only_when_the_operator_says_so() -> None:
    strategies = {obj["metadata"]["labels"][OPERAND_LABEL]: obj["spec"]["updateStrategy"] for obj in sets(rendered())}
    assert strategies.pop(Operand.DRIVER) == {"type": "OnDelete"}
    assert set(map(json.dumps, strategies.values())) == {
        json.dumps({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
    }


def test_monitors_need_the_prometheus_operators_kinds() -> None:
    kinds = [each.object["kind"] for each in rendered(EVERYTHING)]
    assert kinds.count("ServiceMonitor") == 3
    assert kinds.count("PrometheusRule") == 1
    without = {each.object["kind"] for each in rendered(EVERYTHING, service_monitors=False)}
    assert not without & {"ServiceMonitor", "PrometheusRule"}


def test_users_labels_never_replace_those_that_the_operator_reads() -> None:
    mine = {OPERAND_LABEL: "x", TEMPLATE_LABEL: "y", MANAGED_BY_LABEL: "z"}
    theirs = {
        obj["metadata"]["name"]: obj
        for obj in sets(rendered({"daemonsets": {"labels": mine}, "operator": {"labels": mine}}))
    }
    for name, obj in theirs.items():
        assert obj["metadata"]["labels"][OPERAND_LABEL] != "x", name
        assert obj["metadata"]["labels"][MANAGED_BY_LABEL] == FIELD_MANAGER
        labels = obj["spec"]["template"]["metadata"]["labels"]
        assert labels[TEMPLATE_LABEL] == obj["metadata"]["labels"][TEMPLATE_LABEL] != "y"


# --- hashes


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(each, order)) for key, each in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(each, order) for each in value] if isinstance(value, list) else value


def test_equal_content_has_equal_hashes_in_whatever_order() -> None:
    order = random.Random(7)
    for each in rendered(EVERYTHING, **EVERY):
        bare = json.loads(json.dumps(each.object))
        del bare["metadata"]["annotations"][APPLIED_HASH_ANNOTATION]
        if bare["kind"] == "DaemonSet":
            del bare["metadata"]["labels"][TEMPLATE_LABEL]
            del bare["spec"]["template"]["metadata"]["labels"][TEMPLATE_LABEL]
        assert hashed(shuffled(bare, order)) == each.object


def test_the_template_hash_changes_with_the_template_and_with_nothing_else() -> None:
    def template(spec: dict[str, Any]) -> str:
        return str(daemon_set("purser-driver-a", spec)["metadata"]["labels"][TEMPLATE_LABEL])

    def applied(spec: dict[str, Any]) -> str:
        return str(daemon_set("purser-driver-a", spec)["metadata"]["annotations"][APPLIED_HASH_ANNOTATION])

    same = {"operator": {"labels": {"team": "gpu"}}}
    assert template(same) == template({})
    assert applied(same) != applied({})
    assert template({"driver": {"version": "570.1"}}) != template({})
    assert template({"devicePlugin": {"slots": 3}}) == template({})


def test_quantities_are_texts() -> None:
    body = daemon_set("purser-driver-a", {"driver": {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}})
    resources = body["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "2", "memory": "1Gi"}}


# --- the driver


@pytest.mark.parametrize(
    ("driver", "fields", "image"),
    [
        ({}, {}, "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04"),
        ({}, {"version": "570.1"}, "nvcr.io/nvidia/driver:570.1-ubuntu22.04"),
        ({"version": "580.2"}, {}, "nvcr.io/nvidia/driver:580.2-ubuntu22.04"),
        ({"image": "r.example/test:1"}, {"version": "595.91.07"}, "r.example/test:1"),
        ({"version": "sha256:ab"}, {}, "nvcr.io/nvidia/driver@sha256:ab"),
        ({"usePrecompiled": True, "version": "570"}, {}, "nvcr.io/nvidia/driver:570-5.15.0-1-ubuntu22.04"),
        ({"repository": "r.example/x"}, {"profile": "old"}, "r.example/x/driver:470.1-ubuntu22.04"),
        ({"repository": "r.example/x"}, {"profile": "whole"}, "other.example/d:2"),
        ({"version": "580.2"}, {"profile": "gone"}, "nvcr.io/nvidia/driver:580.2-ubuntu22.04"),
    ],
    ids=[
        "default",
        "pool",
        "version",
        "whole",
        "digest",
        "precompiled",
        "profile",
        "whole in a profile",
        "profile gone",
    ],
)
def test_a_pools_driver_image(driver: dict[str, Any], fields: dict[str, Any], image: str) -> None:
    profiles = [
        {"name": "old", "nodeSelector": {"a": "b"}, "version": "470.1"},
        {"name": "whole", "nodeSelector": {"a": "c"}, "image": "other.example/d:2"},
    ]
    obj = daemon_set("purser-driver-a", {"driver": {**driver, "profiles": profiles}}, pools=(pool(**fields),))
    assert obj["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_nobody_but_the_operator_evicts() -> None:
    env = variables(container("k8s-driver-manager", daemon_set("purser-driver-a")))
    assert (env["ENABLE_GPU_POD_EVICTION"], env["ENABLE_AUTO_DRAIN"]) == ("false", "false")


def configuration(spec: dict[str, Any], **fields: Any) -> str:
    """What the driver is loaded from: all that say so agree."""
    obj = daemon_set("purser-driver-a", spec, **fields)
    names = ("k8s-driver-manager", "nvidia-driver-ctr")
    told = {variables(container(name, obj))["DRIVER_CONFIG_DIGEST"] for name in names}
    told |= {part["metadata"]["labels"][DRIVER_CONFIG_LABEL] for part in (obj, obj["spec"]["template"])}
    [found] = told
    return str(found)


SAME = {
    "resources": {"driver": {"resources": {"limits": {"memory": "8Gi"}}}},
    "tolerations": {"daemonsets": {"tolerations": [{"operator": "Exists"}]}},
    "labels": {"daemonsets": {"labels": {"team": "x"}, "annotations": {"a": "b"}}, "operator": {"labels": {"c": "d"}}},
    "priority": {"daemonsets": {"priorityClassName": "high"}},
    "a probe": {"driver": {"startupProbe": {"periodSeconds": 7}, "livenessProbe": {"periodSeconds": 7}}},
    "pulling": {"driver": {"imagePullPolicy": "Always", "imagePullSecrets": ["s"]}},
    "the manager": {"driver": {"manager": {"version": "v1", "env": [{"name": "M", "value": "1"}]}}},
    "repositories": {"driver": {"repoConfig": {"configMapName": "r"}, "certConfig": {"name": "c"}}},
    "licences": {"driver": {"licensingConfig": {"secretName": "l"}, "virtualTopology": {"config": "t"}}},
    "the network": {"driver": {"hostNetwork": True}},
    "another operand": {"devicePlugin": {"slots": 3}},
}
OTHER = {
    "version": {"driver": {"version": "570.1"}},
    "arguments": {"driver": {"args": ["--x"]}},
    "variables": {"driver": {"env": [{"name": "X", "value": "1"}]}},
    "a secret's variables": {"driver": {"secretEnv": "s"}},
    "kind of modules": {"driver": {"kernelModuleType": "open"}},
    "the modules' parameters": {"driver": {"kernelModuleConfig": {"name": "m"}}},
    "peer memory": {"driver": {"rdma": {"enabled": True}}},
    "GPUDirect Storage": {"gds": {"enabled": True}},
    "GDRCopy": {"gdrcopy": {"enabled": True}},
    "where it is": {"hostPaths": {"driverInstallDir": "/opt/d"}},
}


@pytest.mark.parametrize("spec", SAME.values(), ids=list(SAME))
def test_what_the_driver_is_not_loaded_from_leaves_its_configuration_as_it_is(spec: dict[str, Any]) -> None:
    assert configuration(spec) == configuration({})


@pytest.mark.parametrize("spec", OTHER.values(), ids=list(OTHER))
def test_what_the_driver_is_loaded_from_makes_another_configuration(spec: dict[str, Any]) -> None:
    assert configuration(spec) != configuration({})


def test_gds_of_another_version_is_another_configuration_and_other_resources_of_it_are_not() -> None:
    here = {"enabled": True, "version": "1"}
    assert configuration({"gds": {**here, "version": "2"}}) != configuration({"gds": here})
    assert configuration({"gds": {**here, "imagePullPolicy": "Always"}}) == configuration({"gds": here})


def test_only_the_drivers_pods_name_a_configuration() -> None:
    for obj in sets(rendered(EVERYTHING, **EVERY)):
        told = DRIVER_CONFIG_LABEL in obj["spec"]["template"]["metadata"]["labels"]
        assert told is (obj["metadata"]["labels"][OPERAND_LABEL] == Operand.DRIVER)


def test_two_drivers_never_share_a_node() -> None:
    template = daemon_set("purser-driver-a")["spec"]["template"]
    [term] = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_the_mps_daemon_runs_where_nvidias_plugin_shares_by_mps() -> None:
    name = "purser-mps-control-daemon-containerd"
    pod = daemon_set(name, EVERYTHING)["spec"]["template"]["spec"]
    wanted = {"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/mps.capable": "true"}
    assert wanted.items() <= pod["nodeSelector"].items()
    for spec in ({}, SPECS["nvidia's plugin"]):
        assert name not in {each.object["metadata"]["name"] for each in rendered(spec)}


NFD = "feature.node.kubernetes.io/"
KERNEL = f"{NFD}kernel-version.full"


@pytest.mark.parametrize(
    ("labels", "runs"),
    [
        pytest.param({}, True, id="nobody else looks there"),
        pytest.param({KERNEL: "6.8"}, False, id="node-feature-discovery sees no GPU there"),
        pytest.param({KERNEL: "6.8", f"{NFD}pci-0302_10de.present": "true"}, True, id="it sees one"),
        pytest.param({KERNEL: "6.8", f"{NFD}pci-10de.present": "true"}, True, id="by the vendor alone"),
        pytest.param({KERNEL: "6.8", "nvidia.com/gpu.present": "true"}, True, id="the kernel knows that there is one"),
        pytest.param({KERNEL: "6.8", f"{NFD}pci-10de.present": "false"}, False, id="somebody says there is none"),
    ],
)
def test_discovery_runs_where_no_other_does_and_where_there_are_gpus(labels: dict[str, str], runs: bool) -> None:
    def meets(key: str, operator: str, values: tuple[str, ...] = ()) -> bool:
        return {"In": labels.get(key) in values, "DoesNotExist": key not in labels}[operator]

    pod = daemon_set("purser-gpu-discovery")["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert any(all(meets(**each) for each in term["matchExpressions"]) for term in terms) is runs
    assert pod["containers"][0]["image"] == IMAGE


def test_there_is_a_runtime_class_for_each_runtime_that_the_toolkit_installs() -> None:
    def classes(name: str) -> dict[str, str]:
        found = rendered({"operator": {"runtimeClass": name}})
        objects = [each.object for each in found if each.object["kind"] == "RuntimeClass"]
        return {obj["metadata"]["name"]: obj["handler"] for obj in objects}

    modes = {"nvidia-cdi": "nvidia-cdi", "nvidia-legacy": "nvidia-legacy"}
    assert classes("nvidia") == {"nvidia": "nvidia", **modes}
    assert classes("gpu") == {"gpu": "gpu", **modes}
    assert classes("nvidia-cdi") == {"nvidia": "nvidia", **modes}
