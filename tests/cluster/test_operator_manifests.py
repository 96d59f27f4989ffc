"""The operator's manifests on the real API server, written with the rights that the chart gives the operator."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from purser.operator.manifests.objects import projection
from purser.operator.names import FIELD_MANAGER, MANAGED_BY_LABEL
from purser.operator.policy.crd import definition
from tests.cluster.kubernetes import RealCluster
from tests.cluster.purser_processes import PURSER
from tests.unit.deploy.test_helm_chart import render
from tests.unit.operator.manifests.wanteds import KINDS, NAMESPACE, POOLS, SPECS, rendered

JOBS_ACCOUNT = "purser-define"
KINDS_OF_THE_CHART = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def manifests(spec: dict[str, Any], minor: int) -> list[dict[str, Any]]:
    """Of this policy, as far as the server's version knows their fields; without an owner, for which they would be
    collected as garbage: the policy is not there."""
    found = [dict(each.object) for each in rendered(spec, pools=POOLS, runtimes=KINDS, service_monitors=False)]
    for each in found:
        each["metadata"] = {key: value for key, value in each["metadata"].items() if key != "ownerReferences"}
    return [each for each in found if minor >= 22 or "internalTrafficPolicy" not in each.get("spec", {})]


@pytest.fixture(scope="module")
def minor(real_cluster: RealCluster) -> int:
    version = json.loads(real_cluster.kubectl("get", "--raw", "/version"))
    return int(version["minor"].rstrip("+"))


@pytest.fixture(scope="module")
def operators(real_cluster: RealCluster) -> Iterator[Path]:
    """A kubeconfig of the operator's account, with the chart's rights in a namespace of its own."""
    real_cluster.create_namespace(NAMESPACE)
    with_operator = render({"operator": {"enabled": True}})
    rights = [each for each in with_operator if each["kind"] in KINDS_OF_THE_CHART]
    own = [each for each in rights if each["metadata"]["name"] == "purser-operator"]
    real_cluster.apply(*own)
    yield real_cluster.service_account_kubeconfig(NAMESPACE, "purser-operator")
    made = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
    real_cluster.delete("clusterroles,clusterrolebindings,runtimeclasses", "-l", made)
    real_cluster.delete("clusterrole,clusterrolebinding", "purser-operator")
    real_cluster.delete("crd", "clusterpolicies.purser.dev")
    real_cluster.delete("namespace", NAMESPACE)


def apply(cluster: RealCluster, objects: list[dict[str, Any]], kubeconfig: Path, *more: str) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    arguments = ("apply", "--server-side", "--force-conflicts", *more, "-f", "-")
    cluster.kubectl(*arguments, stdin=text, kubeconfig=kubeconfig)


@pytest.mark.parametrize("name", SPECS)
def test_the_operator_may_apply_what_every_kind_of_policy_leads_to(
    cluster: RealCluster, operators: Path, minor: int, name: str
) -> None:
    objects = manifests(SPECS[name], minor)
    # A binding may be made only once its role is there.
    if roles := [each for each in objects if each["kind"] in ("Role", "ClusterRole")]:
        apply(cluster, roles, operators)
    apply(cluster, objects, operators, "--dry-run=server")


def test_what_was_applied_is_no_drift(cluster: RealCluster, operators: Path, minor: int) -> None:
    wanted = manifests({}, minor)
    apply(cluster, wanted, operators)
    for each in wanted:
        metadata = each["metadata"]
        live = cluster.get(each["kind"], metadata["name"], metadata.get("namespace", "default"))
        assert projection(live, each) == each, (each["kind"], metadata["name"])


def conditions(cluster: RealCluster) -> dict[str, str]:
    found = cluster.get("crd", "clusterpolicies.purser.dev").get("status", {}).get("conditions") or []
    return {each["type"]: each["status"] for each in found}


def test_the_charts_job_may_bring_the_crd_up_to_date(cluster: RealCluster, operators: Path) -> None:
    crd = definition()
    cluster.kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(crd))
    cluster.wait_until("the CRD", lambda: conditions(cluster).get("Established") == "True")
    rendered = render({"operator": {"enabled": True}})
    rights = [each for each in rendered if each["kind"] in KINDS_OF_THE_CHART]
    cluster.apply(*(each for each in rights if each["metadata"]["name"] == JOBS_ACCOUNT))
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, JOBS_ACCOUNT)
    command = [str(PURSER), "operator", "crd", "--apply", f"--kubeconfig={kubeconfig}"]
    try:
        assert said(command).endswith(" unchanged\n")
        older = {"spec": {"names": {**crd["spec"]["names"], "shortNames": ["older"]}}}
        cluster.kubectl("patch", "crd", crd["metadata"]["name"], "--type=merge", f"--patch={json.dumps(older)}")
        assert said(command).endswith(" updated\n")
        names = cluster.get("crd", crd["metadata"]["name"])["spec"]["names"]
        assert names["shortNames"] == crd["spec"]["names"]["shortNames"]
    finally:
        cluster.delete("clusterrole,clusterrolebinding", JOBS_ACCOUNT)


def said(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_the_crd_is_established(cluster: RealCluster) -> None:
    crd = definition()
    cluster.kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(crd))
    cluster.wait_until("the CRD", lambda: conditions(cluster).get("Established") == "True")
    assert conditions(cluster)["Established"] == "True"
    assert "NonStructuralSchema" not in conditions(cluster)
