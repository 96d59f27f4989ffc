"""The operator on a real Kubernetes: one story, in the order of its tests."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from purser.lab.hollow import HollowNodes
from purser.lab.hollow.node import FAILING_PODS_ANNOTATION
from purser.operator.order import Operand, prerequisites
from purser.operator.policy import decode

from .kubernetes import RealCluster
from .operator_stack import NAMESPACE, Stack

OURS = "app.kubernetes.io/managed-by=purser-operator"
KINDS = (
    "daemonsets,serviceaccounts,roles,rolebindings,configmaps,services,clusterroles,clusterrolebindings,runtimeclasses"
)


@pytest.fixture(scope="module")
def stack(real_cluster: RealCluster) -> Iterator[Stack]:
    with Stack(real_cluster).running() as running:
        yield running


def enabled(stack: Stack) -> tuple[Operand, ...]:
    return decode(stack.cluster.get("clusterpolicies.purser.dev", "policy")).spec.enabled


def assert_order(stack: Stack) -> None:
    """No node got an operand before all that this needs was ready on that very node."""
    wanted = enabled(stack)
    ready: dict[str, set[str]] = {}
    got: dict[str, set[str]] = {}
    for _, node, what, value in sorted(stack.order, key=lambda each: each[0]):
        if what == "has":
            operand, is_ready = value
            (ready.setdefault(node, set()).add if is_ready else ready.setdefault(node, set()).discard)(operand)
            continue
        for operand in value - got.get(node, set()):
            missing = prerequisites(Operand(operand), wanted) - ready.get(node, set())
            assert not missing, f"{node} got {operand} before {missing}"
        got[node] = value


def test_from_nothing_to_ready_in_order_and_a_driver_that_fails_on_one_node_holds_up_no_other(stack: Stack) -> None:
    stack.add_nodes(HollowNodes(name="good", count=2))
    stack.add_nodes(HollowNodes(name="bad"), **{FAILING_PODS_ANNOTATION: "driver"})
    stack.label_real_nodes()
    stack.create_policy("policy", {})

    def others_are_complete() -> bool:
        nodes = stack.status().get("nodes", {})
        return bool(nodes.get("ready") == 3 and nodes.get("failing") == 1)

    stack.cluster.wait_until("three of four nodes are complete", others_are_complete, 240)
    [failing] = stack.status()["failingNodes"]
    assert (failing["name"], failing["operand"]) == ("bad-0", "driver")
    assert stack.operands("bad-0") == {"driver"}
    assert {"driver", "device-plugin", "operator-validator", "dcgm-exporter"} <= stack.operands(stack.cluster.node_name)
    running = stack.pods("dcgm-exporter")[stack.cluster.node_name]
    assert running["status"]["phase"] == "Running", "real pods on the real node"
    assert len(stack.daemon_sets("driver")) == 2, "one for each operating system"
    assert_order(stack)
    stack.annotate("bad-0", f"{FAILING_PODS_ANNOTATION}-")
    stack.wait_settled()
    assert_order(stack)


def test_nothing_is_written_when_nothing_changed(stack: Stack) -> None:
    stack.wait_settled()
    stack.make_round()
    before = stack.writes()
    stack.make_round()
    assert stack.writes() == before


def test_an_operator_that_is_restarted_finds_nothing_to_write(stack: Stack) -> None:
    stack.operator.stop()
    stack.operator.start()
    stack.wait_operator()
    stack.make_round()
    assert stack.writes() == {}


def test_a_node_that_joins_waits_for_its_own_driver(stack: Stack) -> None:
    stack.add_nodes(HollowNodes(name="late", kernel="6.8.0-31-generic"), **{FAILING_PODS_ANNOTATION: "driver"})
    stack.cluster.wait_until("it gets a driver", lambda: stack.operands("late-0") == {"driver"})
    stack.cluster.wait_until("its driver crashes", lambda: "late-0" in stack.pods("driver"))
    stack.make_round()
    assert stack.operands("late-0") == {"driver"}
    stack.annotate("late-0", f"{FAILING_PODS_ANNOTATION}-")
    stack.wait_settled()
    assert_order(stack)
    assert len(stack.daemon_sets("driver")) == 3, "a pool of its own, for its kernel"


def test_what_was_changed_or_removed_is_repaired(stack: Stack) -> None:
    toolkit = stack.daemon_set("container-toolkit")["metadata"]["name"]
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}]
    stack.cluster.kubectl(
        "patch", "daemonset", toolkit, f"-n{NAMESPACE}", "--type=json", f"--patch={json.dumps(patch)}"
    )

    def repaired() -> bool:
        [container] = stack.daemon_set("container-toolkit")["spec"]["template"]["spec"]["containers"]
        return bool(container["image"] != "evil:1")

    stack.cluster.wait_until("the image is as it was", repaired)
    stack.cluster.delete("clusterrole", "purser-gpu-feature-discovery")
    stack.cluster.wait_until(
        "the role is back", lambda: "purser-gpu-feature-discovery" in stack.cluster.kubectl("get", "clusterroles")
    )
    stack.cluster.kubectl("label", "node", "good-0", "purser.dev/driver-pool-")
    stack.cluster.wait_until(
        "the label is back",
        lambda: "purser.dev/driver-pool" in stack.cluster.get("node", "good-0")["metadata"]["labels"],
    )
    stack.wait_settled()


def test_an_operand_that_is_disabled_is_removed(stack: Stack) -> None:
    stack.change_policy({"dcgmExporter": {"enabled": False}})
    stack.cluster.wait_until("it is gone", lambda: not stack.daemon_sets("dcgm-exporter"))
    stack.cluster.wait_until("its pods are gone", lambda: not stack.pods("dcgm-exporter"))
    stack.wait_settled()
    assert "dcgm-exporter" not in stack.operands("good-0")


def test_an_update_reaches_every_node_by_its_own_way(stack: Stack) -> None:
    """The toolkit rolls; drivers are upgraded node by node."""
    stack.change_policy({"toolkit": {"version": "v9.9.9"}, "driver": {"version": "999.9"}})
    stack.cluster.wait_until(
        "the templates are new",
        lambda: all("999.9" in json.dumps(each["spec"]["template"]) for each in stack.daemon_sets("driver")),
    )
    stack.wait_settled(timeout_seconds=240)
    for operand in ("driver", "container-toolkit"):
        pods = stack.pods(operand)
        assert len(pods) == 5
        assert templates(pods.values()) == templates(stack.daemon_sets(operand)), operand
    nodes = json.loads(stack.cluster.kubectl("get", "nodes", "-ojson"))["items"]
    assert not [each["metadata"]["name"] for each in nodes if each["spec"].get("unschedulable")]


def templates(objects: Iterable[Any]) -> set[str]:
    """One for each kind of nodes that need their own."""
    return {each["metadata"]["labels"]["purser.dev/template"] for each in objects}


def test_a_second_policy_is_ignored_and_takes_over_when_the_first_goes(stack: Stack) -> None:
    spec = stack.cluster.get("clusterpolicies.purser.dev", "policy")["spec"]
    stack.create_policy("second", spec)
    stack.cluster.wait_until("it says so", lambda: stack.status("second").get("state") == "ignored")
    before = {each["metadata"]["uid"] for operand in Operand for each in stack.daemon_sets(operand.value)}
    pods = {each["metadata"]["uid"] for each in stack.pods("driver").values()}
    stack.cluster.kubectl("delete", "clusterpolicies.purser.dev", "policy", "--timeout=60s")
    stack.wait_settled("second")
    assert {each["metadata"]["uid"] for operand in Operand for each in stack.daemon_sets(operand.value)} == before
    assert {each["metadata"]["uid"] for each in stack.pods("driver").values()} == pods


def test_uninstalling_leaves_nothing_behind(stack: Stack) -> None:
    result = subprocess.run(stack.command("uninstall"), capture_output=True, text=True, timeout=180)
    assert (result.returncode, result.stderr) == (0, "")
    found = stack.cluster.kubectl("get", KINDS, "--all-namespaces", f"--selector={OURS}", "-oname")
    assert found == ""
    for node in json.loads(stack.cluster.kubectl("get", "nodes", "-ojson"))["items"]:
        metadata = node["metadata"]
        left = [key for key in metadata["labels"] if key.startswith(("nvidia.com/", "purser.dev/"))]
        assert [key for key in left if key != "purser.dev/lab-hollow"] == []
        annotations = [key for key in metadata.get("annotations", {}) if "nvidia.com/" in key or "purser.dev/" in key]
        assert [key for key in annotations if "/lab-" not in key] == []
    stack.cluster.wait_until("the pods are gone", lambda: not stack.pods("driver"))
