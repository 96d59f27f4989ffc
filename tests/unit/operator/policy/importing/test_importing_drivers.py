"""NVIDIADrivers become spec.driver and its profiles, on the same nodes; where they cannot, it is said."""

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.operator.crd_judge import refusals
from tests.unit.operator.manifests.wanteds import daemon_set, pool
from tests.unit.operator.policy.importing.told import node_assignments, speaks_of

from purser.operator.policy import PolicyError, decode
from purser.operator.policy.importing import import_policy

from .test_importing import ENV, FULL, IMAGE, MANAGER, PROBE, leaves, nvidia

SPEC: dict[str, Any] = {
    "driverType": "gpu",
    "usePrecompiled": True,
    "kernelModuleType": "open",
    "startupProbe": PROBE,
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "rdma": {"enabled": True, "useHostMofed": True},
    "gds": {"enabled": True, **IMAGE, "args": ["-x"], **ENV},
    "gdrcopy": {"enabled": True, **IMAGE, "args": ["-x"], **ENV},
    **IMAGE,
    "manager": MANAGER,
    "resources": {"limits": {"cpu": "500m"}},
    "args": ["-v"],
    **ENV,
    "repoConfig": {"name": "repos"},
    "certConfig": {"name": "certs"},
    "licensingConfig": {"name": "old", "secretName": "new", "nlsEnabled": False},
    "virtualTopologyConfig": {"name": "topology"},
    "kernelModuleConfig": {"name": "modules"},
    "secretEnv": "secret",
    "nodeSelector": {"gpu": "h100"},
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}},
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "high",
    "podSecurityContext": {"runAsUser": 5},
    "hostNetwork": True,
    "useOpenKernelModules": True,
    "upgradePolicy": FULL["driver"]["upgradePolicy"],
    "default": False,
}
"""Every field of an NVIDIADriver, each set."""


def driver(name: str, **spec: Any) -> dict[str, Any]:
    body = {"repository": "r.example", "image": "driver", "version": "570.1", **spec}
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": name}, "spec": body}


def policy(**section: Any) -> dict[str, Any]:
    return nvidia({"driver": {"useNvidiaDriverCRD": True, **section}})


def about(lost: tuple[str, ...], text: str) -> list[str]:
    return [line for line in lost if text in line]


def test_the_driver_for_all_nodes_is_the_policys_and_the_others_are_profiles() -> None:
    imported = import_policy(
        [
            driver("all", usePrecompiled=True),
            policy(upgradePolicy={"autoUpgrade": True, "podDeletion": {"force": True}}),
            driver("h100", nodeSelector={"gpu": "h100"}, version="580.2", usePrecompiled=True, kernelModuleType="open"),
        ]
    )
    spec = decode(imported.policy).spec.driver
    assert spec.upgrade_policy.auto_upgrade
    assert (spec.repository, spec.image, spec.version, spec.use_precompiled) == ("r.example", "driver", "570.1", True)
    assert spec.upgrade_policy.gpu_pod_deletion.force
    [profile] = imported.policy["spec"]["driver"]["profiles"]
    assert profile == {
        "name": "h100",
        "nodeSelector": {"gpu": "h100"},
        "repository": "r.example",
        "image": "driver",
        "version": "580.2",
        "kernelModuleType": "open",
    }
    assert imported.lost == ()


def test_fields_that_all_share_are_written_once_for_other_nodes_too() -> None:
    both = {"usePrecompiled": True, "env": [{"name": "A", "value": "1"}]}
    drivers = [driver(name, nodeSelector={"gpu": name}, **both) for name in ("a", "b")]
    imported = import_policy([policy(), *drivers])
    spec = decode(imported.policy).spec.driver
    assert spec.use_precompiled
    assert [each.name for each in spec.env] == ["A"]
    assert spec.version == ""
    assert len(imported.lost) == 1
    assert about(imported.lost, "nodes that no NVIDIADriver selects")


def test_a_profile_says_in_what_its_driver_differs_and_takes_away_what_that_lacks() -> None:
    drivers = [
        driver(
            "all", secretEnv="s", env=ENV["env"], imagePullPolicy="Always", priorityClassName="low", version="570.1"
        ),
        driver("a", nodeSelector={"gpu": "a"}, rdma={"enabled": True}, gds={"enabled": True}, version="580.2"),
    ]
    imported = import_policy([policy(), *drivers])
    [profile] = imported.policy["spec"]["driver"]["profiles"]
    assert {name: value for name, value in profile.items() if name not in ("name", "nodeSelector", "image")} == {
        "repository": "r.example",
        "version": "580.2",
        "kernelModuleType": "auto",
        "secretEnv": "",
        "env": [],
        "imagePullPolicy": "IfNotPresent",
        "priorityClassName": "system-node-critical",
        "rdma": {"enabled": True},
        "gds": {"enabled": True},
    }
    assert imported.lost == ()


def test_upgrades_are_those_of_all_nodes_and_others_are_reported() -> None:
    quick, slow = {"maxParallelUpgrades": 3}, {"maxParallelUpgrades": 1}
    drivers = [
        driver("all", upgradePolicy=quick),
        driver("same", nodeSelector={"gpu": "a"}, upgradePolicy={"autoUpgrade": True, **quick}),
        driver("other", nodeSelector={"gpu": "b"}, upgradePolicy=slow),
    ]
    imported = import_policy([policy(upgradePolicy={"autoUpgrade": False}), *drivers])
    upgrades = decode(imported.policy).spec.driver.upgrade_policy
    assert (upgrades.auto_upgrade, upgrades.max_parallel_upgrades) == (True, 3)
    assert about(imported.lost, "NVIDIADriver other: spec.upgradePolicy: ")
    assert not about(imported.lost, "NVIDIADriver same")


def drivers_manifest(documents: list[dict[str, Any]], profile: str) -> dict[str, Any]:
    spec = import_policy(documents).policy["spec"]
    return daemon_set("purser-driver-a", spec, pools=(pool("a", profile=profile),))


WHOLE = {name: value for name, value in SPEC.items() if name not in ("default", "driverType", "nodeSelector")}
COMMON = {"daemonsets": {"priorityClassName": "common", "podSecurityContext": {"runAsUser": 7}}}


@pytest.mark.parametrize("name", WHOLE)
def test_each_field_of_a_driver_of_some_nodes_does_what_it_does_on_all(name: str) -> None:
    """And the driver of all nodes, which has all the others, does nothing to it."""
    mine = {name: WHOLE[name]}
    old = {**policy(), "spec": {**policy()["spec"], **COMMON}}
    of_some = drivers_manifest([old, driver("all", **WHOLE), driver("p", nodeSelector={"a": "b"}, **mine)], "p")
    of_all = drivers_manifest([old, driver("all", **{"imagePullPolicy": "IfNotPresent", **mine})], "")
    assert of_some == of_all


@examples(25)
@given(st.data())
def test_a_driver_of_some_nodes_is_the_same_whatever_that_of_all_nodes_is(data: st.DataObject) -> None:
    def some() -> dict[str, Any]:
        names = data.draw(st.lists(st.sampled_from(sorted(WHOLE.keys() - {*IMAGE, "imagePullPolicy"})), unique=True))
        return {"imagePullPolicy": "Never", **{name: WHOLE[name] for name in names}}

    mine, base = some(), some()
    old = {**policy(), "spec": {**policy()["spec"], **(COMMON if data.draw(st.booleans()) else {})}}
    of_some = drivers_manifest([old, driver("all", **base), driver("p", nodeSelector={"a": "b"}, **mine)], "p")
    assert of_some == drivers_manifest([old, driver("all", **mine)], "")


def test_drivers_that_may_select_one_node_are_reported_and_the_narrower_one_comes_first() -> None:
    imported = import_policy(
        [
            policy(),
            driver("wide", nodeSelector={"gpu": "a"}),
            driver("narrow", nodeSelector={"gpu": "a", "zone": "1"}),
            driver("apart", nodeSelector={"gpu": "b"}),
            driver("wider", nodeSelector={"zone": "1"}),
        ]
    )
    assert [each.name for each in decode(imported.policy).spec.driver.profiles] == ["narrow", "apart", "wide", "wider"]
    assert about(imported.lost, "NVIDIADriver wide: if narrow selects the same node")
    assert about(imported.lost, "NVIDIADriver wider: if narrow, apart or wide selects the same node")
    assert not about(imported.lost, "NVIDIADriver apart: where")


def test_a_second_driver_for_all_nodes_is_reported() -> None:
    imported = import_policy([policy(), driver("b", version="2"), driver("a", version="1", default=True)])
    assert decode(imported.policy).spec.driver.version == "1"
    assert about(imported.lost, "NVIDIADriver b: a also selects all nodes and is used instead")


@pytest.mark.parametrize("kind", [{}, {"useNvidiaDriverCRD": False}], ids=["absent", "false"])
def test_drivers_that_had_no_effect_get_none(kind: dict[str, Any]) -> None:
    imported = import_policy([nvidia({"driver": {"version": "1", **kind}}), driver("a", nodeSelector={"gpu": "a"})])
    spec = decode(imported.policy).spec.driver
    assert (spec.version, spec.profiles) == ("1", ())
    assert about(imported.lost, "NVIDIADriver a: it had no effect")


def test_the_policys_driver_section_had_no_effect_beside_them() -> None:
    old = nvidia(
        {"driver": {"useNvidiaDriverCRD": True, "version": "1", "rdma": {"enabled": True}}, "gds": {"enabled": True}}
    )
    imported = import_policy([old, driver("all", version="2", rdma={"enabled": True})])
    assert decode(imported.policy).spec.driver.version == "2"
    assert not decode(imported.policy).spec.gds.enabled
    told = about(imported.lost, "it had no effect because NVIDIADrivers override it")
    assert node_assignments(told) == {"spec.driver.version", "spec.gds"}


def test_without_the_drivers_that_counted_it_says_to_give_them() -> None:
    assert about(import_policy([policy()]).lost, "spec.driver.useNvidiaDriverCRD: profiles replace it")


@pytest.mark.parametrize(
    ("spec", "events"),
    [
        ({"driverType": "vgpu-host-manager"}, "spec.driverType: this NVIDIADriver is not imported"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector: this NVIDIADriver is not imported"),
    ],
    ids=["a host of virtual GPUs", "no selector"],
)
def test_a_driver_that_cannot_be_taken_over_is_left_out_whole(spec: dict[str, Any], events: str) -> None:
    imported = import_policy([policy(), driver("all"), driver("odd", **spec)])
    assert decode(imported.policy).spec.driver.profiles == ()
    assert about(imported.lost, f"NVIDIADriver odd: {events}")


def test_one_driver_that_purser_refuses_takes_no_other_with_it() -> None:
    moving = driver("odd", nodeSelector={"nvidia.com/gpu.deploy.driver": "true"})
    imported = import_policy([policy(), driver("all"), moving, driver("a", nodeSelector={"gpu": "a"})])
    assert [each.name for each in decode(imported.policy).spec.driver.profiles] == ["a"]
    assert about(imported.lost, "profile odd is removed: ")


def test_a_section_that_lacks_what_it_needs_is_reported_and_left_out() -> None:
    context = {"seccompProfile": {"localhostProfile": "x"}, "runAsUser": 0}
    imported = import_policy([nvidia({"daemonsets": {"podSecurityContext": context}})])
    assert imported.policy["spec"]["daemonsets"]["podSecurityContext"] == {"runAsUser": 0}
    assert imported.lost == ("spec.daemonsets.podSecurityContext.seccompProfile: required field type is missing",)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"repository": "", "image": "r.example/x/driver", "version": "1"}, ("r.example/x", "driver", "1")),
        ({"repository": "", "image": "r.example/x/driver:1", "version": ""}, ("", "r.example/x/driver:1", "")),
        ({"repository": "r", "image": "driver", "version": "sha256:ab"}, ("r", "driver", "sha256:ab")),
    ],
    ids=["a path and a version", "a whole reference", "a digest"],
)
def test_images_stay_what_they_were(given: dict[str, str], made: tuple[str, str, str]) -> None:
    for nodes in ({}, {"gpu": "a"}):
        spec = decode(import_policy([policy(), driver("a", nodeSelector=nodes, **given)]).policy).spec.driver
        [found] = spec.profiles or [spec]
        assert (found.repository, found.image, found.version) == made


def test_profiles_have_names_that_they_may_have() -> None:
    names = ["h100.example", "h100-example", "x" * 60, "x" * 61]
    imported = import_policy([policy(), *(driver(name, nodeSelector={"gpu": name}) for name in names)])
    made = [each.name for each in decode(imported.policy).spec.driver.profiles]
    assert made == ["h100-example", "h100-example-2", "x" * 36, "x" * 36 + "-2"]
    assert about(imported.lost, "NVIDIADriver h100.example: metadata.name: the profile is named h100-example-2")


def test_lists_of_kubectl_are_taken_apart_and_other_objects_are_named() -> None:
    other = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}
    second = {**nvidia({"driver": {"version": "9"}}), "metadata": {"name": "b", "creationTimestamp": "2026-01-02"}}
    first = {**policy(), "metadata": {"name": "a", "creationTimestamp": "2026-01-01"}}
    items = [second, {"kind": "List", "items": [driver("all"), other]}, first]
    imported = import_policy([{"apiVersion": "v1", "kind": "List", "items": items}])
    assert decode(imported.policy).metadata.name == "a"
    assert decode(imported.policy).spec.driver.version == "570.1"
    assert about(imported.lost, "nvidia.com/v1alpha1 GPUCluster gpu-cluster: no counterpart in Purser")
    assert about(imported.lost, "ClusterPolicy b: it had no effect because a is older")


def test_of_a_driver_that_is_there_twice_the_last_counts() -> None:
    imported = import_policy([policy(), driver("all", version="1"), driver("all", version="2")])
    assert decode(imported.policy).spec.driver.version == "2"
    assert len(about(imported.lost, "NVIDIADriver all: defined more than once")) == 1


def test_drivers_without_a_policy_are_refused() -> None:
    with pytest.raises(PolicyError, match="expected a ClusterPolicy"):
        import_policy([driver("a")])


NEW_NAMES = {
    "repoConfig.name": "repoConfig.configMapName",
    "virtualTopologyConfig.name": "virtualTopology.config",
    "licensingConfig.name": "licensingConfig.configMapName",
    "upgradePolicy.podDeletion": "upgradePolicy.gpuPodDeletion",
}
IN_NO_POLICY = {"driverType", "nodeSelector", "default"}


def accounted(name: str, path: tuple[str, ...], value: Any, made: dict[str, Any], lost: tuple[str, ...]) -> bool:
    """Whether a field of the driver for all nodes is in the policy, or is said to be lost."""
    place = ".".join(path)
    for old, new in NEW_NAMES.items():
        place = re.sub(rf"^{re.escape(old)}\b", new, place)
    found: Any = made if path[0] in ("gds", "gdrcopy") else made["driver"]
    for part in place.split("."):
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found == value or speaks_of(lost, f"NVIDIADriver {name}: spec.{place}")


@examples(25)
@given(st.data())
def test_whatever_is_set_nothing_is_dropped_in_silence(data: st.DataObject) -> None:
    fields = [path for path, _ in leaves(SPEC)]
    spec = json.loads(json.dumps(SPEC))
    for path in data.draw(st.lists(st.sampled_from(fields), max_size=40, unique=True)):
        parent = spec
        for part in path[:-1]:
            parent = parent[part]
        if data.draw(st.booleans()):
            parent[path[-1]] = data.draw(st.sampled_from([None, True, 3, "x", ["x"], {"a": 1}]))
        else:
            del parent[path[-1]]
    nodes = {"driverType": "gpu", "nodeSelector": {}}
    imported = import_policy(
        [policy(**{**FULL["driver"], "useNvidiaDriverCRD": True}), driver("d", **{**spec, **nodes})]
    )
    decode(imported.policy)
    assert refusals(copy.deepcopy(imported.policy["spec"])) == []
    for path, value in leaves(spec):
        if path[0] not in IN_NO_POLICY and value not in (None, {}, []):
            assert accounted("d", path, value, imported.policy["spec"], imported.lost), (path, value)


@pytest.mark.parametrize("version", ["nvidia.com/v1", "nvidia.com/v1alpha1"], ids=["a policy's", "a driver's"])
def test_a_field_that_is_there_under_both_names_is_not_lost_in_silence(version: str) -> None:
    both = {"repoConfig": {"name": "old", "configMapName": "new"}, "virtualTopology": "odd"}
    both["virtualTopologyConfig"] = {"name": "topology"}
    of_driver = version.endswith("alpha1")
    objects = [policy(), driver("all", **both)] if of_driver else [nvidia({"driver": both})]
    imported = import_policy(objects)
    assert decode(imported.policy).spec.driver.repo_config.config_map_name == "new"
    place = "NVIDIADriver all: spec" if of_driver else "spec.driver"
    assert about(imported.lost, f"{place}.repoConfig.name: ")
    assert about(imported.lost, f"{place}.virtualTopologyConfig.name: ")
