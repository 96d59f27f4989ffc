"""A profile can say of its nodes' driver whatever the driver's own section says of all nodes'."""

from typing import Any

import msgspec
import pytest

from purser.operator.policy.driver import DriverProfile, DriverSpec
from purser.operator.policy.spec import ClusterPolicySpec

from .wanteds import KINDS, POOLS, container, daemon_set, pool, rendered, variables

PROBE = {"periodSeconds": 7, "failureThreshold": 9}
IMAGE = {
    "repository": "r.example",
    "image": "i",
    "version": "9",
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["p"],
}
ENV = [{"name": "A", "value": "1"}]
SAID: dict[str, Any] = {
    "repository": "r.example",
    "image": "other",
    "version": "470.1",
    "imagePullPolicy": "Never",
    "imagePullSecrets": ["mine"],
    "kernelModuleType": "proprietary",
    "usePrecompiled": True,
    "resources": {"limits": {"cpu": "3"}},
    "args": ["-v"],
    "env": ENV,
    "hostNetwork": True,
    "startupProbe": PROBE,
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "rdma": {"enabled": True, "useHostMofed": True},
    "gds": {"enabled": True, **IMAGE, "args": ["-x"], "env": ENV},
    "gdrcopy": {"enabled": True, **IMAGE, "args": ["-x"], "env": ENV},
    "manager": {**IMAGE, "env": ENV},
    "repoConfig": {"configMapName": "repos"},
    "certConfig": {"name": "certs"},
    "licensingConfig": {"configMapName": "licence", "nlsEnabled": False},
    "virtualTopology": {"config": "topology"},
    "kernelModuleConfig": {"name": "modules"},
    "secretEnv": "secrets",
    "labels": {"cost": "1"},
    "annotations": {"note": "x"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "priorityClassName": "high",
    "podSecurityContext": {"runAsUser": 0, "seLinuxOptions": {"level": "s0"}},
}
"""Something for each field of a profile."""

POOL = pool("a", profile="p")
_OF_THE_POLICY = ("gds", "gdrcopy")


def _everywhere(said: dict[str, Any]) -> dict[str, Any]:
    """As the sections for all nodes say the same."""
    beside = {name: value for name, value in said.items() if name in _OF_THE_POLICY}
    return {"driver": {name: value for name, value in said.items() if name not in beside}, **beside}


def _with_profile(said: dict[str, Any], base: dict[str, Any] | None = None) -> dict[str, Any]:
    base = base or {}
    profile = {"name": "p", "nodeSelector": {"a": "b"}, **said}
    return {**base, "driver": {**base.get("driver", {}), "profiles": [profile]}}


def _driver(spec: dict[str, Any], name: str = "a") -> dict[str, Any]:
    return daemon_set(f"purser-driver-{name}", spec, pools=(POOL, pool("b")))


def test_a_profile_has_every_field_that_a_driver_has() -> None:
    of_profiles = {field.encode_name for field in msgspec.structs.fields(DriverProfile)} - {"name", "nodeSelector"}
    of_drivers = {field.encode_name for field in msgspec.structs.fields(DriverSpec)}
    assert of_profiles == of_drivers - {"enabled", "profiles", "requirements", "upgradePolicy"} | {"gds", "gdrcopy"}
    assert SAID.keys() == of_profiles
    assert {"gds", "gdrcopy"} <= {field.encode_name for field in msgspec.structs.fields(ClusterPolicySpec)}


@pytest.mark.parametrize("name", SAID)
def test_a_field_of_a_profiles_nodes_applies_to_all(name: str) -> None:
    said = {name: SAID[name]}
    found = _driver(_with_profile(said))
    assert found == _driver(_everywhere(said))
    assert found["spec"] != _driver({})["spec"]
    assert _driver(_with_profile(said), "b") == _driver({}, "b"), "nodes of no profile have something of it"


def test_a_complete_profile_is_as_if_all_nodes_were_listed() -> None:
    assert _driver(_with_profile(SAID)) == _driver(_everywhere(SAID))


@pytest.mark.parametrize(
    ("name", "nothing"),
    [
        *((name, []) for name in ("imagePullSecrets", "args", "env", "tolerations")),
        *((name, {}) for name in ("resources", "livenessProbe", "rdma", "gds", "gdrcopy", "manager", "repoConfig")),
        *((name, {}) for name in ("certConfig", "licensingConfig", "virtualTopology", "kernelModuleConfig", "labels")),
        *((name, {}) for name in ("annotations", "readinessProbe")),
        ("secretEnv", ""),
        ("usePrecompiled", False),
        ("hostNetwork", False),
    ],
)
def test_a_profile_can_take_away_what_all_others_have(name: str, nothing: Any) -> None:
    everywhere = _everywhere({name: SAID[name]})
    assert _driver(_with_profile({name: nothing}, everywhere)) == _driver({})
    assert _driver(_with_profile({}, everywhere)) == _driver(everywhere)


def test_the_plugin_offers_what_the_driver_of_some_node_has_beside_it() -> None:
    spec = _with_profile({"gds": {"enabled": True}, "gdrcopy": {"enabled": True}})
    for obj in (each.object for each in rendered({**spec, "devicePlugin": {"flavor": "nvidia"}}, pools=POOLS)):
        if obj["metadata"]["name"] == f"purser-device-plugin-{KINDS[0].label}":
            told = variables(container("nvidia-device-plugin", obj))
            assert (told["GDS_ENABLED"], told["GDRCOPY_ENABLED"]) == ("true", "true")
            return
    pytest.fail("there is no device plugin")


def test_a_licence_comes_from_the_secret_where_both_are_named() -> None:
    both = {"licensingConfig": {"secretName": "s", "configMapName": "c"}}
    volumes = {each["name"]: each for each in _driver({"driver": both})["spec"]["template"]["spec"]["volumes"]}
    assert volumes["licensing-config"]["secret"]["secretName"] == "s"
