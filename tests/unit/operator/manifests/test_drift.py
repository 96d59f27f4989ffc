"""What counts as drift, and what does not."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples

from purser.operator.manifests.objects import apply_reason, difference, projection, removal
from purser.operator.model import AppliedObject

CONTAINER = {
    "name": "main",
    "image": "x:1",
    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
    "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}],
    "ports": [{"name": "metrics", "containerPort": 9400}],
    "args": ["a", "b"],
}


def desired(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "d", "annotations": {"purser.dev/applied-hash": "h"}},
        "spec": {"containers": [CONTAINER | container], "hostNetwork": False},
    }


def live() -> dict[str, Any]:
    """As a server has it: with what it adds, and without what is empty."""
    found = deepcopy(desired())
    found["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    found["spec"] |= {"restartPolicy": "Always"}
    del found["spec"]["hostNetwork"]
    container = found["spec"]["containers"][0]
    container |= {"terminationMessagePath": "/dev/termination-log"}
    container["ports"][0]["protocol"] = "TCP"
    return found


def at(obj: dict[str, Any], *path: Any) -> Any:
    for key in path:
        obj = obj[key]
    return obj


def test_what_servers_add_and_leave_out_is_no_drift() -> None:
    assert difference(live(), desired()) == []
    assert apply_reason(live(), desired(), None) == ""


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        pytest.param(("image",), "y:2", "image", id="a value"),
        pytest.param(("args",), ["a", "c"], "args[1]", id="a list's item"),
        pytest.param(("args",), ["a"], "args", id="a shorter list"),
        pytest.param(("env", 0, "value"), "9", "env[0].value", id="an item of a list of named things"),
        pytest.param(("env",), [{"name": "B", "value": "2"}], "env", id="a named thing is missing"),
        pytest.param(("volumeMounts", 1, "mountPath"), "/c", "volumeMounts", id="a mount elsewhere"),
        pytest.param(("ports", 0, "containerPort"), 1, "ports", id="another port"),
    ],
)
def test_drift_is_found_where_it_is(path: tuple[Any, ...], value: Any, where: str) -> None:
    changed = live()
    at(changed, "spec", "containers", 0, *path[:-1])[path[-1]] = value
    assert difference(changed, desired()) == [f"spec.containers[0].{where}"]
    assert apply_reason(changed, desired(), None) == f"drift: spec.containers[0].{where}"


def test_what_others_add_by_name_is_theirs() -> None:
    changed = live()
    container = at(changed, "spec", "containers", 0)
    container["env"].insert(0, {"name": "THEIRS", "value": "x"})
    container["volumeDevices"] = [{"name": "w", "devicePath": "/w"}]
    changed["spec"]["containers"].append({"name": "sidecar"})
    changed["metadata"]["annotations"]["theirs"] = "x"
    assert difference(changed, desired()) == []


def test_a_field_that_is_to_be_false_is_missed_when_it_is_true() -> None:
    changed = live()
    changed["spec"]["hostNetwork"] = True
    assert difference(changed, desired()) == ["spec.hostNetwork"]


def test_why_an_object_is_applied() -> None:
    other = desired()
    other["metadata"]["annotations"] = {"purser.dev/applied-hash": "i"}
    assert apply_reason(None, desired(), None) == "created"
    assert apply_reason(live(), other, None) == "changed"
    bare = live()
    del bare["metadata"]["annotations"]
    assert apply_reason(bare, desired(), None) == "changed"


def test_what_came_out_of_the_same_apply_is_no_drift() -> None:
    changed = live()
    at(changed, "spec", "containers", 0)["image"] = "spelled-otherwise"
    assert apply_reason(changed, desired(), AppliedObject("h", changed)) == ""
    assert apply_reason(changed, desired(), AppliedObject("g", changed)).startswith("drift")
    assert apply_reason(changed, desired(), AppliedObject("h", live())).startswith("drift")


def test_many_differences_are_named_in_part() -> None:
    changed = live()
    for key in ("image", "name", "args", "env"):
        at(changed, "spec", "containers", 0).pop(key)
    changed["metadata"]["name"] = "e"
    changed["spec"]["hostNetwork"] = True
    assert apply_reason(changed, desired(), None) == "drift: metadata.name, spec.containers, spec.hostNetwork"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | any_text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "key", "a", "b"]), inner),
    max_leaves=20,
)


@given(JSON, JSON)
@examples(50)
def test_whatever_is_compared_an_equal_value_has_no_difference_and_nothing_crashes(one: Any, other: Any) -> None:
    assert difference(one, one) == []
    assert (projection(one, other) == other) == (difference(one, other) == [])


# --- places that are the operator's alone


def daemon_set(*, env: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    container = {"name": "main", "image": "x:1", **({"env": list(env)} if env else {})}
    pod = {"nodeSelector": {"os": "linux"}, "containers": [container], "volumes": [{"name": "v"}]}
    meta = {"name": "d", "annotations": {"purser.dev/applied-hash": "h"}}
    return {"kind": "DaemonSet", "metadata": meta, "spec": {"template": {"spec": pod}}}


def daemon_set_with(**container: Any) -> dict[str, Any]:
    found = daemon_set()
    found["spec"]["template"]["spec"]["containers"][0] |= deepcopy(container)
    return found


def service() -> dict[str, Any]:
    meta = {"name": "s", "annotations": {"purser.dev/applied-hash": "h"}}
    ports = [{"name": "metrics", "port": 9400, "targetPort": 9400, "protocol": "TCP"}]
    return {"kind": "Service", "metadata": meta, "spec": {"ports": ports, "selector": {"app": "x"}}}


def binding() -> dict[str, Any]:
    meta = {"name": "b", "annotations": {"purser.dev/applied-hash": "h"}}
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": "n"}
    return {"kind": "ClusterRoleBinding", "metadata": meta, "subjects": [subject]}


def config_map(**data: str) -> dict[str, Any]:
    meta = {"name": "c", "annotations": {"purser.dev/applied-hash": "h"}}
    return {"kind": "ConfigMap", "metadata": meta, **({"data": data} if data else {})}


POD = ("spec", "template", "spec")
MOUNTS = [{"name": "v", "mountPath": "/a"}]
PORTS = [{"name": "metrics", "containerPort": 9400}]
EVIL = {"name": "evil", "image": "y", "securityContext": {"privileged": True}}
USER = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}


@pytest.mark.parametrize(
    ("wanted", "path", "value", "where"),
    [
        pytest.param(
            daemon_set(), (*POD, "nodeSelector", "x"), "y", "spec.template.spec.nodeSelector.x", id="selector"
        ),
        pytest.param(
            daemon_set(),
            (*POD, "containers"),
            [EVIL, daemon_set()["spec"]["template"]["spec"]["containers"][0]],
            "spec.template.spec.containers",
            id="container",
        ),
        pytest.param(daemon_set(), (*POD, "initContainers"), [EVIL], "spec.template.spec.initContainers", id="init"),
        pytest.param(
            daemon_set(),
            (*POD, "containers", 0, "env"),
            [{"name": "LD_PRELOAD", "value": "/x"}],
            "spec.template.spec.containers[0].env",
            id="the first variable",
        ),
        pytest.param(
            daemon_set(env=({"name": "A", "value": "1"},)),
            (*POD, "containers", 0, "env"),
            [{"name": "A", "value": "1"}, {"name": "LD_PRELOAD", "value": "/x"}],
            "spec.template.spec.containers[0].env",
            id="one more variable",
        ),
        pytest.param(
            daemon_set(),
            (*POD, "containers", 0, "envFrom"),
            [{"secretRef": {"name": "s"}}],
            "spec.template.spec.containers[0].envFrom",
            id="variables of a Secret",
        ),
        pytest.param(
            daemon_set(), (*POD, "containers", 0, "args"), ["--x"], "spec.template.spec.containers[0].args", id="args"
        ),
        pytest.param(
            daemon_set_with(volumeMounts=MOUNTS),
            (*POD, "containers", 0, "volumeMounts"),
            [{"name": "v", "mountPath": "/evil"}, *MOUNTS],
            "spec.template.spec.containers[0].volumeMounts",
            id="mount",
        ),
        pytest.param(
            daemon_set_with(ports=PORTS),
            (*POD, "containers", 0, "ports"),
            [*PORTS, {"name": "metrics", "containerPort": 9999, "protocol": "TCP"}],
            "spec.template.spec.containers[0].ports",
            id="port of the same name",
        ),
        pytest.param(
            service(),
            ("spec", "ports"),
            [{**service()["spec"]["ports"][0], "port": 9999}, *service()["spec"]["ports"]],
            "spec.ports",
            id="a Service's port of the same name",
        ),
        pytest.param(
            service(),
            ("spec", "ports"),
            [*service()["spec"]["ports"], {"name": "other", "port": 1, "targetPort": 1, "protocol": "TCP"}],
            "spec.ports",
            id="a Service's other port",
        ),
        pytest.param(service(), ("spec", "selector", "b"), "y", "spec.selector.b", id="whom a Service serves"),
        pytest.param(binding(), ("subjects",), [*binding()["subjects"], USER], "subjects", id="subject"),
        pytest.param(
            binding(),
            ("subjects",),
            [{**binding()["subjects"][0], "namespace": "other"}, *binding()["subjects"]],
            "subjects",
            id="subject of the same name",
        ),
        pytest.param(config_map(a="1"), ("data", "b"), "2", "data.b", id="a key"),
        pytest.param(config_map(a="1"), ("binaryData",), {"b": "Mg=="}, "binaryData", id="a key with bytes"),
    ],
)
def test_what_is_added_in_places_that_are_the_operators_is_drift_and_taken_away(
    wanted: dict[str, Any], path: tuple[Any, ...], value: Any, where: str
) -> None:
    changed = deepcopy(wanted)
    at(changed, *path[:-1])[path[-1]] = value
    assert apply_reason(changed, wanted, None) == f"drift: {where}"
    after = merge_patched(changed, removal(changed, wanted))
    assert (difference(after, wanted), removal(after, wanted)) == ([], {})


def merge_patched(value: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    found |= {key: merge_patched(found.get(key), each) for key, each in patch.items() if each is not None}
    return {key: each for key, each in found.items() if key not in patch or patch[key] is not None}


def test_of_an_object_with_additions_only_those_go() -> None:
    changed = daemon_set(env=({"name": "A", "value": "1"},))
    changed["metadata"]["labels"] = {"theirs": "x"}
    pod = at(changed, *POD)
    pod["containers"][0] |= {"terminationMessagePath": "/t", "volumeDevices": [{"name": "w", "devicePath": "/w"}]}
    pod["volumes"].append({"name": "w"})
    pod["tolerations"] = [{"operator": "Exists"}]
    wanted = daemon_set(env=({"name": "A", "value": "1"},))
    assert (difference(changed, wanted), removal(changed, wanted)) == ([], {})
    before = deepcopy(changed)
    pod["containers"].append(EVIL)
    pod["nodeSelector"]["x"] = "y"
    patch = removal(changed, wanted)
    assert patch == {"spec": {"template": {"spec": {"nodeSelector": {"x": None}, "containers": pod["containers"][:1]}}}}
    assert merge_patched(changed, patch) == before


def test_what_a_server_adds_to_an_apply_again_and_again_is_no_drift() -> None:
    """A webhook's container: it would come back for ever."""
    changed = daemon_set()
    at(changed, *POD)["containers"].append(EVIL)
    assert apply_reason(changed, daemon_set(), AppliedObject("h", changed)) == ""
    assert (
        apply_reason(changed, daemon_set(), AppliedObject("h", daemon_set())) == "drift: spec.template.spec.containers"
    )


@given(JSON, JSON)
@examples(50)
def test_whatever_is_taken_away_leaves_nothing_to_take_away(one: Any, other: Any) -> None:
    live, wanted = {"kind": "ConfigMap", "data": one}, {"kind": "ConfigMap", "data": other}
    assert removal(merge_patched(live, removal(live, wanted)), wanted) == {}
