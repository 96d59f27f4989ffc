"""Whoever is root on a node has the tokens there: they change their own node's keys of Purser's, and nothing else."""

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from cel_expr_python import cel

from purser.core.names import UNHEALTHY_TAINT
from purser.core.node.writers import (
    NODE_NAME_EXTRA,
    NODE_WRITERS,
    POD_NAME_EXTRA,
    POD_UID_EXTRA,
    SCHEDULER_WRITER,
    NodeWrite,
    node_writers,
    refusal,
)
from purser.operator.manifests.rbac import ACCOUNTS
from purser.scheduler.webhook.node_policies import node_policies, user_of
from purser.scheduler.webhook.node_writes import NodeWrites
from purser.scheduler.webhook.review import DecisionReason, ReviewError, decode_review
from purser.scheduler.webhook.validation import Validation

from .node_writes import CASES, Case

NAMESPACE = "purser-system"
WRITERS = {each.account: each for each in (*NODE_WRITERS, SCHEDULER_WRITER)}
POD = "agent-x"


def _is_schedulers_event(case: Case) -> bool:
    """Nobody asks about it."""
    return case.account == SCHEDULER_WRITER.account and case.resource == "events"


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)


@pytest.mark.parametrize("case", [each for each in CASES if not _is_schedulers_event(each)], ids=lambda case: case.says)
def test_the_rule_says_so(case: Case) -> None:
    write = NodeWrite(
        writer=WRITERS[case.account],
        node=case.node,
        operation=case.operation,
        resource=case.resource,
        name=case.name,
        new=case.new or {},
        old=case.old or {},
    )
    assert (refusal(write) == "") is case.admitted, refusal(write)


@every_case
def test_the_api_servers_policy_says_so(case: Case) -> None:
    assert admitted_by_policies(request_of(case)) is case.admitted


@every_case
def test_the_webhook_says_so(case: Case) -> None:
    """As API servers before 1.30 ask: their tokens name a pod, whose node the scheduler knows."""
    extra = {POD_NAME_EXTRA: [POD], POD_UID_EXTRA: ["uid-1"]} if case.node else {}
    nodes = {(NAMESPACE, POD, "uid-1"): case.node}
    webhook = Validation(node_writes=NodeWrites(NAMESPACE, lambda *pod: nodes.get(pod, "")))
    decision = webhook.review(decode_review(json.dumps(review_of(request_of(case, extra))).encode()))
    assert decision.allowed is case.admitted, decision.message
    assert (decision.why is DecisionReason.NOT_ITS_NODE) is not case.admitted


@pytest.mark.parametrize(
    "extra",
    [
        {POD_NAME_EXTRA: [POD], POD_UID_EXTRA: ["uid-of-one-before"]},
        {POD_NAME_EXTRA: ["another"], POD_UID_EXTRA: ["uid-1"]},
        {POD_NAME_EXTRA: [POD]},
        {POD_NAME_EXTRA: [], POD_UID_EXTRA: []},
        {},
    ],
)
def test_a_token_whose_pod_is_not_known_writes_nothing(extra: dict[str, list[str]] | None) -> None:
    nodes = {(NAMESPACE, POD, "uid-1"): "n1"}
    webhook = Validation(node_writes=NodeWrites(NAMESPACE, lambda *pod: nodes.get(pod, "")))
    request = request_of(CASES[0], extra)
    assert not webhook.review(decode_review(json.dumps(review_of(request)).encode())).allowed


@pytest.mark.parametrize("user", ["kubernetes-admin", "system:node:n1", "system:serviceaccount:team:purser-agent"])
def test_nobody_else_is_asked_about(user: str) -> None:
    """Whatever they write, and however it reads: it is not looked at."""
    request = {**request_of(CASES[0]), "userInfo": {"username": user}, "name": "n2"}
    assert admitted_by_policies(request)
    webhook = Validation(node_writes=NodeWrites(NAMESPACE))
    assert webhook.review(decode_review(json.dumps(review_of({**request, "object": [1]})).encode())).allowed


@pytest.mark.parametrize(
    ("pod", "uid", "extra", "admitted"),
    [
        ("here", "uid-1", {NODE_NAME_EXTRA: ["n1"]}, True),
        ("here", "uid-1", {POD_NAME_EXTRA: [POD], POD_UID_EXTRA: ["uid-agent"]}, True),
        ("there", "uid-2", {NODE_NAME_EXTRA: ["n1"]}, False),
        ("here", "uid-of-one-before", {NODE_NAME_EXTRA: ["n1"]}, False),
        ("here", "", {NODE_NAME_EXTRA: ["n1"]}, False),
        ("unknown", "uid-3", {NODE_NAME_EXTRA: ["n1"]}, False),
        ("unknown", "uid-3", {}, False),
        ("here", "uid-1", {}, False),
    ],
)
def test_it_evicts_pods_of_its_own_node_alone(pod: str, uid: str, extra: dict[str, list[str]], admitted: bool) -> None:
    nodes = {("team", "here", "uid-1"): "n1", ("team", "there", "uid-2"): "n2", (NAMESPACE, POD, "uid-agent"): "n1"}
    webhook = Validation(node_writes=NodeWrites(NAMESPACE, lambda *pod: nodes.get(pod, "")))
    eviction = {"metadata": {"name": pod}, "deleteOptions": {"preconditions": {"uid": uid}} if uid else {}}
    asked = {**request_of(CASES[0], extra), "operation": "CREATE", "namespace": "team", "name": pod}
    asked |= {"resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction"}

    def review(object: Any, user: str = "") -> bool:
        said = {**asked, "object": object} | ({"userInfo": {"username": user}} if user else {})
        return webhook.review(decode_review(json.dumps(review_of(said)).encode())).allowed

    assert review(eviction) is admitted
    assert review(eviction, user="kubernetes-admin")
    with pytest.raises(ReviewError):
        review({"deleteOptions": {"preconditions": []}})


def test_every_account_that_may_write_nodes_is_a_writer_with_keys_of_its_own() -> None:
    able = {
        each.name
        for each in ACCOUNTS
        for rule in each.cluster
        if {"nodes", "nodes/status"} & {*rule["resources"]} and {"patch", "update"} & {*rule["verbs"]}
    }
    assert able == {each.account for each in NODE_WRITERS}
    reporting = {each.name for each in ACCOUNTS for rule in each.cluster if "events" in rule["resources"]}
    assert reporting == {each.account for each in NODE_WRITERS if each.reports}


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(
    ("spec", "by"),
    [
        ({"taints": [{"key": "a"}, {"key": UNHEALTHY_TAINT}]}, "taint"),
        ({"taints": [{"key": UNHEALTHY_TAINT}]}, None),
        ({"taints": [{"key": "a"}, {"key": "b"}]}, None),
        ({"taints": [{"key": "a"}], "unschedulable": True}, "cordon"),
    ],
)
def test_agents_taint_and_cordon_for_ill_gpus_where_that_is_allowed(
    spec: dict[str, Any], by: str | None, allowed: bool
) -> None:
    old = {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a"}]}}
    case = replace(CASES[0], new={**old, "spec": spec}, old=old)
    taint, cordon = (allowed and by == each for each in ("taint", "cordon"))
    expected = allowed and by is not None
    policies = node_policies(NAMESPACE, *(str(each).lower() for each in (taint, cordon)))
    assert admitted_by_policies(request_of(case), policies) is expected
    webhook = NodeWrites(NAMESPACE, writers=node_writers(agents_taint=taint, agents_cordon=cordon))
    review = decode_review(json.dumps(review_of(request_of(case))).encode())
    assert Validation(node_writes=webhook).review(review).allowed is expected


def request_of(case: Case, extra: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """What an API server says of the write, with Kubernetes 1.30's word of the node unless another is given."""
    if extra is None:
        extra = {NODE_NAME_EXTRA: [case.node]} if case.node else {}
    return {
        "uid": "r-1",
        "operation": case.operation,
        "resource": {"group": "", "version": "v1", "resource": case.resource},
        "name": case.name,
        "userInfo": {"username": user_of(WRITERS[case.account], NAMESPACE), **({"extra": extra} if extra else {})},
        "object": case.new,
        "oldObject": case.old,
    }


def review_of(request: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(
    ("label", "is_feature"),
    [
        ("nvidia.com/gpu.product", True),
        ("nvidia.com/mig-1g.5gb.count", True),
        ("gpu.purser.dev/NVIDIA-L4", True),
        ("nvidia.com/gpu.deploy.driver", False),
        ("nvidia.com/mig.config", False),
        ("kubernetes.io/hostname", False),
    ],
)
def test_agents_write_labels_of_gpus_where_that_is_allowed(label: str, is_feature: bool, allowed: bool) -> None:
    old = {"metadata": {"name": "n1", "labels": {}}, "spec": {}}
    case = replace(CASES[0], new={**old, "metadata": {"name": "n1", "labels": {label: "x"}}}, old=old)
    expected = allowed and is_feature
    policies = node_policies(NAMESPACE, agents_label=str(allowed).lower())
    assert admitted_by_policies(request_of(case), policies) is expected
    webhook = NodeWrites(NAMESPACE, writers=node_writers(agents_label=allowed))
    review = decode_review(json.dumps(review_of(request_of(case))).encode())
    assert Validation(node_writes=webhook).review(review).allowed is expected


def admitted_by_policies(request: dict[str, Any], policies: list[dict[str, Any]] | None = None) -> bool:
    """What the policies make of a request: all that match it have to admit it, an error refuses it."""
    found = (each for each in policies or node_policies(NAMESPACE) if each["kind"] == "ValidatingAdmissionPolicy")
    return all(_admits(each["spec"], request) for each in found)


def _admits(policy: dict[str, Any], request: dict[str, Any]) -> bool:
    [rule] = policy["matchConstraints"]["resourceRules"]
    if request["resource"]["resource"] not in rule["resources"] or request["operation"] not in rule["operations"]:
        return True
    if not all(_true(each["expression"], request) for each in policy["matchConditions"]):
        return True
    variables = {each["name"]: each["expression"] for each in policy["variables"]}
    return all(_true(_put_in(each["expression"], variables), request) for each in policy["validations"])


def _put_in(expression: str, variables: dict[str, str]) -> str:
    """An API server evaluates variables when they are asked for, so that each stands for its expression."""
    while found := re.search(r"variables\.(\w+)", expression):
        expression = expression[: found.start()] + f"({variables[found.group(1)]})" + expression[found.end() :]
    return expression


def _true(expression: str, request: dict[str, Any]) -> bool:
    data = {"request": request, "object": request["object"], "oldObject": request["oldObject"]}
    return _compiled(expression).eval(data=data).value() is True


@cache
def _compiled(expression: str) -> Any:
    names = dict.fromkeys(("request", "object", "oldObject"), cel.Type.DYN)
    return cel.NewEnv(variables=names).compile(expression)
