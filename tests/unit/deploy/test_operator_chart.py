"""The chart with the operator: its rights cover all that it grants, and its agent is the chart's own."""

from typing import Any

import jsonschema
import pytest
from tests.unit.operator.sections import all_operands

from purser.kube import Resource
from purser.kube.policy_group import budgets_resource
from purser.kube.resources import NODES, PODS
from purser.operator.manifests import render as render_operands
from purser.operator.manifests.objects import MONITORS, OWNED_KINDS
from purser.operator.manifests.rbac import ACCOUNTS, accounts_of
from purser.operator.model import RenderInputs, RuntimeKind
from purser.operator.observing.kinds import RIVALS
from purser.operator.policy import CLUSTER_POLICIES, crd, decode

from .commands import assert_parses
from .test_helm_chart import VARIANTS, find, render

HELMS_PATIENCE_S = 300
"""For a hook, unless its user says otherwise: what takes longer fails without a word."""

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
        for r in render_operands(RenderInputs(policy=policy, namespace=NAMESPACE, purser_image=IMAGE, runtimes=kinds))
    ]


def test_without_the_operator_there_is_nothing_of_it() -> None:
    names = {document["metadata"]["name"] for document in render({})}
    assert "purser-agent" in names
    assert not [name for name in names if "operator" in name or "stack" in name]


def test_the_operator_brings_the_agent_itself() -> None:
    names = {document["metadata"]["name"] for document in render(WITH_OPERATOR)}
    assert "purser-operator" in names
    assert "purser-agent" not in names


def test_the_charts_policy_is_a_good_one() -> None:
    schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    for values in (values for name, values in VARIANTS.items() if "operator" in name):
        policy = policy_of(values)
        decode(policy)
        jsonschema.Draft202012Validator(schema).validate(policy)


def test_the_policys_own_words_win_over_what_the_chart_fills_in() -> None:
    policy = decode(policy_of(VARIANTS["with the operator, everything set"]))
    assert policy.metadata.name == "gpus"
    assert policy.spec.device_plugin.slots == 4
    assert policy.spec.device_plugin.image_pull_secrets == ("pull",)
    assert policy.spec.mig_manager.image_pull_policy == "Always"
    assert policy.spec.discovery.image_pull_secrets == ("pull",)
    own = policy_of({**WITH_OPERATOR, "clusterPolicy": {"spec": {"devicePlugin": {"imagePullPolicy": "Never"}}}})
    assert decode(own).spec.device_plugin.image_pull_policy == "Never"


def test_the_chart_says_nothing_of_images_that_are_not_pursers() -> None:
    spec = {"devicePlugin": {"flavor": "nvidia"}}
    found = decode(
        policy_of({**WITH_OPERATOR, "imagePullSecrets": [{"name": "pull"}], "clusterPolicy": {"spec": spec}})
    )
    assert found.spec.device_plugin.image_pull_secrets == ()
    assert found.spec.device_plugin.image_pull_policy == ""
    assert found.spec.mig_manager.image_pull_secrets == ("pull",)


SET: dict[str, Any] = {
    "enforcement": "mps",
    "hamiCoreImage": "registry.example/hami:1",
    "evictOverUsers": True,
    "evictFromUnhealthyGpus": True,
    "featureLabels": "node-feature",
    "taintNodes": True,
    "cordonNodes": True,
    "resetGpus": True,
    "sriov": {"config": "sriovdp-config", "resourcePrefix": "openshift.io", "useCdi": True},
}
"""What values of the chart and fields of a policy are called alike."""
WITHOUT_GFD = {"gfd": {"enabled": False}}


@pytest.mark.parametrize(
    ("of_values", "of_policy"),
    [({}, {}), ({**SET, "mpsExclusive": True}, {**SET, "mps": {"exclusive": True}})],
    ids=["defaults", "everything set"],
)
def test_the_operators_agent_has_the_arguments_and_mounts_of_the_charts(
    of_values: dict[str, Any], of_policy: dict[str, Any]
) -> None:
    config = {"name": "shared", "default": "halves"}
    alike = {"deviceListStrategy": "cdi-annotations,cdi-cri", "migStrategy": "single", "config": config}
    values = {"agent": {**alike, **of_values}}
    theirs_whole = find(render(values), "DaemonSet", "purser-agent")["spec"]
    spec = {"driver": {"enabled": False}, "devicePlugin": {"config": config, **of_policy}, **WITHOUT_GFD}
    made = find(operands(spec), "DaemonSet", "purser-device-plugin-containerd")["spec"]
    assert made["updateStrategy"]["type"] == theirs_whole["updateStrategy"]["type"]
    chart, pod = theirs_whole["template"]["spec"], made["template"]["spec"]
    assert pod["tolerations"] == chart["tolerations"]
    for copier in chart.get("initContainers", []):
        del copier["imagePullPolicy"]
    assert pod.get("initContainers") == chart.get("initContainers")
    [theirs], [ours] = chart["containers"], pod["containers"]
    for each in theirs["env"]:
        if "valueFrom" in each:
            each["valueFrom"]["fieldRef"]["apiVersion"] = "v1"  # the API's default
    for each in (theirs, ours):  # the operator's gets it per node where the driver is, and where the toolkit
        places = ("--driver-root", "--nvidia-cdi-hook-path")
        each["args"] = [argument for argument in each["args"] if not argument.startswith(places)]
    for field in theirs.keys() - {"imagePullPolicy"}:
        assert ours[field] == theirs[field], field
    assert ours.keys() == theirs.keys() - {"imagePullPolicy"}
    assert sorted(pod["volumes"], key=str) == sorted(chart["volumes"], key=str)
    assert pod["serviceAccountName"] == chart["serviceAccountName"]


@pytest.mark.parametrize("given", [{}, SET], ids=["defaults", "everything set"])
def test_the_operators_agent_may_do_what_the_charts_may(given: dict[str, Any]) -> None:
    theirs, ours = render({"agent": given}), operands({"devicePlugin": given, **WITHOUT_GFD})
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
    most = decode({"metadata": {"name": "p"}, "spec": {"devicePlugin": SET, **WITHOUT_GFD}}).spec
    for account in (*ACCOUNTS, *accounts_of(most)):
        assert [rule for rule in account.cluster if not covers(cluster, rule)] == [], account.name
        assert [rule for rule in account.namespace if not covers(cluster + namespace, rule)] == [], account.name


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


@pytest.mark.parametrize("where", ["agent", "clusterPolicy"])
def test_agents_may_write_on_their_nodes_what_values_or_the_charts_policy_have_them_write(where: str) -> None:
    given = {"taintNodes": True, "cordonNodes": True, "featureLabels": "node-labels"}
    values = {**WITH_OPERATOR, where: given if where == "agent" else {"spec": {"devicePlugin": given}}}
    for found, may in ((values, True), ({"clusterPolicy": {"spec": {"devicePlugin": given}}}, False)):
        documents = render(found)
        args = find(documents, "Deployment", "purser-scheduler")["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [f"--agents-{each}" in args for each in ("taint", "cordon", "label")] == [may] * 3
        policy = find(documents, "ValidatingAdmissionPolicy", "purser-node-writes")["spec"]
        rules = {each["name"]: each["expression"] for each in policy["variables"]}
        agent = f"'system:serviceaccount:{NAMESPACE}:purser-agent': {str(may).lower()}"
        assert all(agent in rules[each] for each in ("taints", "cordons", "prefixes"))


def test_the_operator_may_write_all_that_it_renders() -> None:
    documents = render(WITH_OPERATOR)
    cluster = find(documents, "ClusterRole", "purser-operator")["rules"]
    namespace = find(documents, "Role", "purser-operator")["rules"]
    everything = {
        **all_operands(enabled=True),
        "dcgmExporter": {"enablePodUID": True},
    }
    for obj in [*operands(everything), *operands({"devicePlugin": {"flavor": "nvidia"}})]:
        group = obj["apiVersion"].rpartition("/")[0]
        rules = cluster + (namespace if "namespace" in obj["metadata"] else [])
        for verb in ("create", "patch", "delete"):
            names = {"resourceNames": [obj["metadata"]["name"]]}
            wanted = {"apiGroups": [group], "resources": [PLURALS[obj["kind"]]], "verbs": [verb], **names}
            assert covers(rules, wanted), (obj["kind"], obj["metadata"]["name"], verb)


EVERYWHERE = (CLUSTER_POLICIES, NODES, PODS, RIVALS, budgets_resource("v1"), budgets_resource("v1beta1"))


@pytest.mark.parametrize(
    "resource", [*OWNED_KINDS, *MONITORS, *EVERYWHERE], ids=lambda each: f"{each.plural}.{each.group}"
)
def test_the_operator_may_see_all_that_it_follows(resource: Resource[Any]) -> None:
    documents = render(WITH_OPERATOR)
    cluster = find(documents, "ClusterRole", "purser-operator")["rules"]
    namespace = find(documents, "Role", "purser-operator")["rules"]
    in_its_namespace = resource.namespaced and resource not in EVERYWHERE
    wanted = {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": ["list", "watch"]}
    assert covers(cluster + (namespace if in_its_namespace else []), wanted)


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
    for kind, name in (("Deployment", "purser-operator"), ("Job", "purser-remove-stack"), ("Job", "purser-define")):
        pod = find(render(WITH_OPERATOR), kind, name)["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_stack_is_removed_while_the_operator_is_still_there() -> None:
    job = find(render(WITH_OPERATOR), "Job", "purser-remove-stack")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    [container] = job["spec"]["template"]["spec"]["containers"]
    [seconds] = [int(each.partition("=")[2]) for each in container["args"] if each.startswith("--timeout=")]
    assert seconds * (1 + job["spec"]["backoffLimit"]) < HELMS_PATIENCE_S
    kept = render({"operator": {"enabled": True, "removeStackOnUninstall": False}})
    names = {document["metadata"]["name"] for document in kept}
    assert "purser-remove-stack" not in names
    assert "purser-clean-up" not in names  # it would wait for agents that stay, and fail


def test_the_definition_is_brought_up_to_date_before_an_upgrade_by_an_account_that_may_do_nothing_else() -> None:
    documents = [each for each in render(WITH_OPERATOR) if each["metadata"]["name"] == "purser-define"]
    hooks = {each["kind"]: each["metadata"]["annotations"] for each in documents}
    assert set(hooks) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    for hook in hooks.values():
        assert hook["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert "hook-succeeded" in hook["helm.sh/hook-delete-policy"]
    weights = {kind: int(hook["helm.sh/hook-weight"]) for kind, hook in hooks.items()}
    assert max(weights, key=lambda kind: weights[kind]) == "Job"
    [rule] = find(documents, "ClusterRole", "purser-define")["rules"]
    assert rule["resourceNames"] == [crd.definition()["metadata"]["name"]]
    assert rule["verbs"] == ["get", "patch"]
    pod = find(documents, "Job", "purser-define")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "purser-define"
    [binding] = [each for each in documents if each["kind"] == "ClusterRoleBinding"]
    assert binding["subjects"][0]["name"] == pod["serviceAccountName"]


def test_the_definition_is_left_alone_where_others_manage_it() -> None:
    theirs = render({"operator": {"enabled": True, "updateDefinition": False}})
    assert not [each for each in (*theirs, *render({})) if each["metadata"]["name"] == "purser-define"]
