"""The manifests give the rights and open the ports that docs/rights.md lists, and no others."""

import re
from typing import Any

from purser.core.node.writers import NODE_WRITERS, SCHEDULER_WRITER
from tests.unit.deploy.test_helm_chart import render

from .rights import ROOT, VALUES, borrowed, given, listed, table, written

USERS_THEMSELVES = ("NVIDIA's", "kube-scheduler's")


def test_who_may_do_what_is_what_the_page_says() -> None:
    listed_rights = [right for right, _ in written()]
    assert sorted(listed_rights) == sorted(set(listed_rights)), "listed twice"
    assert sorted(given() - set(listed_rights)) == [], "given, and not on the page"
    assert sorted(set(listed_rights) - given()) == [], "on the page, and not given"


def test_every_right_has_its_user_in_the_code_or_is_for_an_image_of_others() -> None:
    for right, why in written():
        paths = re.findall(r"`([\w/]+\.py)`", why)
        assert paths or any(each in why for each in USERS_THEMSELVES), f"{right}: {why}"
        assert [path for path in paths if not (ROOT / "src" / "purser" / path).is_file()] == []


def test_roles_of_kubernetes_own_are_those_of_the_page() -> None:
    assert borrowed() == {(account.strip("`"), role.strip("`")) for account, role in table("borrowed")}


def test_nobody_but_the_scheduler_reads_secrets_and_it_reads_its_own_two() -> None:
    rights = [right for right in given() if right.resource == "secrets" and right.verb not in ("create", "delete")]
    able = {(right.account, right.name) for right in rights}
    assert able == {("purser-scheduler", name) for name in ("purser-grant-signing-key", "purser-scheduler-tls")}


def test_nobody_can_raise_his_rights_or_act_for_others() -> None:
    """A role with these verbs is worth every other one."""
    assert not [right for right in given() if right.verb in ("*", "escalate", "bind", "impersonate", "approve", "sign")]
    rights = {right.resource for right in given()}
    assert not rights & {"serviceaccounts/token", "pods/exec", "pods/ephemeralcontainers", "nodes/proxy", "pods/attach"}


def test_accounts_on_nodes_write_what_the_page_says() -> None:
    words = {True: "yes", False: "no"}
    rows = [
        (
            w.account,
            list(w.annotations),
            list(w.label_prefixes),
            list(w.conditions),
            list(w.amounts),
            words[w.cordons],
            words[w.reports],
        )
        for w in (*NODE_WRITERS, SCHEDULER_WRITER)
    ]
    page = table("writers")
    assert rows == [
        (a.strip("`"), listed(b), listed(c), listed(d), listed(e), cordon, events)
        for a, b, c, d, e, cordon, events in page
    ]


def test_ports_are_those_of_the_page() -> None:
    rows = [(pods.strip("`"), int(port), address, opened) for pods, port, address, opened, _ in table("ports")]
    assert {(pods, port) for pods, port, address, _ in rows if address == "all"} == _container_ports()
    assert {(pods, port) for pods, port, _, opened in rows if opened == "yes"} == _open_ports()
    on_loopback = {(pods, port) for pods, port, address, _ in rows if address == "loopback"}
    assert on_loopback == {("purser-scheduler", port) for port in _extender_ports()}
    assert not on_loopback & (_container_ports() | _open_ports())


def _workloads() -> list[dict[str, Any]]:
    documents = [each for values in VALUES for each in render(values)]
    return [each for each in documents if each["kind"] in ("Deployment", "DaemonSet")]


def _containers(workload: dict[str, Any]) -> list[dict[str, Any]]:
    return list(workload["spec"]["template"]["spec"]["containers"])


def _container_ports() -> set[tuple[str, int]]:
    return {
        (workload["metadata"]["name"], port["containerPort"])
        for workload in _workloads()
        for container in _containers(workload)
        for port in container.get("ports", ())
    }


def _open_ports() -> set[tuple[str, int]]:
    """Of pods: what their NetworkPolicy lets through."""
    policies = [each for values in VALUES for each in render(values) if each["kind"] == "NetworkPolicy"]
    found = set()
    for workload in _workloads():
        labels = workload["spec"]["template"]["metadata"]["labels"].items()
        chosen = [each["spec"] for each in policies if each["spec"]["podSelector"]["matchLabels"].items() <= labels]
        assert chosen, f"no NetworkPolicy is for {workload['metadata']['name']}"
        ports = {port["port"] for policy in chosen for rule in policy["ingress"] for port in rule["ports"]}
        found |= {(workload["metadata"]["name"], port) for port in ports}
    return found


def _extender_ports() -> set[int]:
    arguments = [each for workload in _workloads() for c in _containers(workload) for each in c.get("args", ())]
    return {int(each.partition("=")[2]) for each in arguments if each.startswith("--extender-port=")}
