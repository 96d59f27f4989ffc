"""The chart with the operator: its rights cover all that it grants, and its agent is the chart's own."""

from typing import Any

import jsonschema
import pytest

from purser.operator import crd
from purser.operator.model import RuntimeKind, Wanted
from purser.operator.operands import render as render_operands
from purser.operator.operands.grants import GRANTS
from purser.operator.policy import decode

from .commands import assert_parses
from .test_helm_chart import VARIANTS, find, render

WITH_OPERATOR = {"operator": {"enabled": True}}
NAMESPACE = "purser-system"
IMAGE = "purser:0.1.0"


def policy_of(values: dict[str, Any]) -> dict[str, Any]:
    [found] = [document for document in render(values) if document["kind"] == "ClusterPolicy"]
    return dict(found)


def operands(spec: dict[str, Any]) -> list[dict[str, Any]]:
    policy = decode({"metadata": {"name": "p", "uid": "u"}, "spec": spec})
    kinds = (RuntimeKind("containerd"),)
    return [
        dict(r.object)
        for r in render_operands(Wanted(policy=policy, namespace=NAMESPACE, purser_image=IMAGE, runtimes=kinds))
    ]


def test_without_the_operator_there_is_nothing_of_it() -> None:
    names = {document["metadata"]["name"] for document in render({})}
    assert "purser-agent" in names
    assert not [name for name in names if "operator" in name or "stack" in name]


def test_the_operator_brings_the_agent_itself() -> None:
    names = {document["metadata"]["name"] for document in render(WITH_OPERATOR)}
    assert "purser-operator" in names
    assert "purser-agent" not in names


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "operator" in name])
def test_the_charts_policy_is_a_good_one(variant: str) -> None:
    policy = policy_of(VARIANTS[variant])
    decode(policy)
    schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    jsonschema.validate(policy, schema)


def test_the_policys_own_words_win_over_what_the_chart_fills_in() -> None:
    policy = decode(policy_of(VARIANTS["with the operator, everything set"]))
    assert policy.metadata.name == "gpus"
    assert policy.spec.device_plugin.slots == 4
    assert policy.spec.device_plugin.image_pull_secrets == ("pull",)
    assert policy.spec.mig_manager.image_pull_policy == "Always"
    own = policy_of({**WITH_OPERATOR, "clusterPolicy": {"spec": {"devicePlugin": {"imagePullPolicy": "Never"}}}})
    assert decode(own).spec.device_plugin.image_pull_policy == "Never"


def test_the_operators_agent_has_the_arguments_and_mounts_of_the_charts() -> None:
    chart = find(render({}), "DaemonSet", "purser-agent")["spec"]["template"]["spec"]
    made = find(operands({"driver": {"enabled": False}}), "DaemonSet", "purser-device-plugin-containerd")
    pod = made["spec"]["template"]["spec"]
    [theirs], [ours] = chart["containers"], pod["containers"]
    theirs["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"  # the API's default
    for field in theirs.keys() - {"imagePullPolicy"}:
        assert ours[field] == theirs[field], field
    assert ours.keys() == theirs.keys() - {"imagePullPolicy"}
    assert sorted(pod["volumes"], key=str) == sorted(chart["volumes"], key=str)
    assert pod["serviceAccountName"] == chart["serviceAccountName"]


def test_the_operators_agent_may_do_what_the_charts_may() -> None:
    theirs, ours = render({}), operands({})
    for kind in ("ClusterRole", "Role"):
        assert find(ours, kind, "purser-agent")["rules"] == find(theirs, kind, "purser-agent")["rules"]


def covers(rules: list[dict[str, Any]], wanted: dict[str, Any]) -> bool:
    """Whether these rules allow all of one: as the API server checks it before a role may be granted."""

    def allowed(group: str, resource: str, verb: str, name: str) -> bool:
        return any(
            group in rule["apiGroups"]
            and resource in rule["resources"]
            and verb in rule["verbs"]
            and (not rule.get("resourceNames") or name in rule["resourceNames"])
            for rule in rules
        )

    return all(
        allowed(group, resource, verb, name)
        for group in wanted["apiGroups"]
        for resource in wanted["resources"]
        for verb in wanted["verbs"]
        for name in wanted.get("resourceNames", [""])
    )


def test_the_operator_may_do_all_that_it_grants() -> None:
    documents = render(WITH_OPERATOR)
    cluster = find(documents, "ClusterRole", "purser-operator")["rules"]
    namespace = find(documents, "Role", "purser-operator")["rules"]
    for grant in GRANTS:
        assert [rule for rule in grant.cluster if not covers(cluster, rule)] == [], grant.account
        assert [rule for rule in grant.namespace if not covers(cluster + namespace, rule)] == [], grant.account


PLURALS = {
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "Service": "services",
    "DaemonSet": "daemonsets",
    "RuntimeClass": "runtimeclasses",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
}


def test_the_operator_may_write_all_that_it_renders() -> None:
    documents = render(WITH_OPERATOR)
    cluster = find(documents, "ClusterRole", "purser-operator")["rules"]
    namespace = find(documents, "Role", "purser-operator")["rules"]
    everything = {
        "nodeStatusExporter": {"enabled": True},
        "dcgm": {"enabled": True},
        "dcgmExporter": {"enablePodUID": True},
    }
    for obj in [*operands(everything), *operands({"devicePlugin": {"flavor": "nvidia"}})]:
        group = obj["apiVersion"].rpartition("/")[0]
        rules = cluster + (namespace if "namespace" in obj["metadata"] else [])
        for verb in ("create", "patch", "delete"):
            names = {"resourceNames": [obj["metadata"]["name"]]}
            wanted = {"apiGroups": [group], "resources": [PLURALS[obj["kind"]]], "verbs": [verb], **names}
            assert covers(rules, wanted), (obj["kind"], obj["metadata"]["name"], verb)


def test_operands_that_are_pursers_own_are_commands_that_it_has() -> None:
    own = [
        container["args"]
        for obj in operands({})
        if obj["kind"] == "DaemonSet"
        for container in obj["spec"]["template"]["spec"]["containers"]
        if container["image"] == IMAGE
    ]
    assert {args[0] for args in own} == {"agent", "discover", "mig-worker"}
    for args in own:
        assert_parses(args)


def test_the_operator_never_runs_as_root() -> None:
    for kind, name in (("Deployment", "purser-operator"), ("Job", "purser-remove-stack")):
        pod = find(render(WITH_OPERATOR), kind, name)["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_stack_is_removed_while_the_operator_is_still_there() -> None:
    job = find(render(WITH_OPERATOR), "Job", "purser-remove-stack")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    kept = render({"operator": {"enabled": True, "removeStackOnUninstall": False}})
    assert not [document for document in kept if document["kind"] == "Job"]
