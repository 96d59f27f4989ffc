"""The document on what the operator rolls out: of a status as the operator writes it, and of whatever stands there."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.adapters.rollouts import CLUSTER_POLICIES
from purser.core.state import Rollout, rollout, rollout_node
from purser.operator.policy import CLUSTER_POLICIES as OPERATORS_POLICIES
from purser.operator.policy import ClusterPolicyStatus
from purser.operator.policy.spec import (
    Condition,
    FailingNode,
    NodeCounts,
    OperandStatus,
    PoolStatus,
    UpcomingUpgrade,
    UpgradeStatus,
)

STATUS = ClusterPolicyStatus(
    state="notReady",
    namespace="purser-system",
    observed_generation=3,
    conditions=(
        Condition(type="Ready", status="False", reason="OperandsNotReady", message="1 of 2", last_transition_time="t"),
    ),
    nodes=NodeCounts(total=2, ready=1, failing=1),
    operands=(OperandStatus(name="driver", state="failing", desired=2, ready=1, updated=1, message="node a: crash"),),
    failing_nodes=(FailingNode(name="a", operand="driver", reason="CrashLoop", message="exit 1"),),
    pools=(PoolStatus(name="p", os="ubuntu 22.04", kernel="5.15", driver="580", nodes=2),),
    upgrade=UpgradeStatus(
        pending=1,
        in_progress=1,
        halted=True,
        halt_reason="1 of 1 failed",
        target="p.1",
        upcoming=(UpcomingUpgrade(name="b", driver="580", restart_only=True),),
    ),
)


def test_every_field_of_the_operators_status_but_its_generation_is_in_the_document():
    found = rollout({"gpus": msgspec.json.decode(msgspec.json.encode(STATUS))}, ())
    assert found.problems == ()
    shown, written = msgspec.to_builtins(found.policies[0]), msgspec.json.decode(msgspec.json.encode(STATUS))
    assert shown.pop("name") == "gpus"
    del written["observedGeneration"]
    for condition in written["conditions"]:
        condition.pop("observedGeneration", None)
    assert _leaves(shown) == _leaves(written)


def _leaves(value):
    """What is not a zero value, in order of the keys as both spell them."""
    if isinstance(value, dict):
        pairs = ((key.replace("_", "").lower(), _leaves(each)) for key, each in value.items())
        return sorted((key, each) for key, each in pairs if each not in ("", 0, False, [], None))
    if isinstance(value, list | tuple):
        return [_leaves(each) for each in value]
    return value


def test_the_active_policy_comes_first():
    statuses = {"a": {"state": "ignored"}, "b1": {}, "b10": {"state": "notReady"}, "b9": {"state": "ready"}}
    names = [each.name for each in rollout(statuses, ()).policies]
    assert names == ["b9", "b10", "b1", "a"]


@pytest.mark.parametrize("status", [{"nodes": 3}, {"operands": [{"name": 7}]}, "x", {"upgrade": {"halted": "yes"}}])
def test_a_status_that_cannot_be_read_costs_itself_alone(status):
    found = rollout({"bad": status, "good": {"state": "ready"}}, (), ["before"])
    assert [each.name for each in found.policies] == ["good"]
    assert found.problems[0] == "before"
    assert "ClusterPolicy bad" in found.problems[1]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["nodes", "operands", "upgrade", "inProgress", "conditions", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(_json)
def test_whatever_stands_there_the_document_can_be_sent_and_read(status):
    found = rollout({"p": status}, ())
    assert msgspec.json.decode(msgspec.json.encode(found), type=Rollout) == found
    assert len(found.policies) + len(found.problems) == 1


def test_a_status_that_nests_too_deep_is_named():
    status: dict = {}
    for _ in range(2000):
        status = {"x": status}
    assert "nested deeper" in rollout({"p": status}, ()).problems[0]


def test_a_node_shows_its_gates_its_upgrade_and_its_layout():
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.deploy.dcgm": "paused-for-driver-upgrade",
        "nvidia.com/gpu-driver-upgrade-state": "drain-required",
        "nvidia.com/mig.config": "all-1g.10gb",
        "nvidia.com/mig.config.state": "pending",
        "purser.dev/driver-pool": "p",
    }
    found = rollout_node("n", labels, {"purser.dev/cordoned-by": "driver-upgrade"}, cordoned=True)
    assert found.gates == {"dcgm": "paused-for-driver-upgrade", "driver": "true"}
    assert (found.upgrade, found.mig_layout, found.mig_state) == ("drain-required", "all-1g.10gb", "pending")
    assert (found.pool, found.cordoned_by) == ("p", "driver-upgrade")
    assert rollout_node("n", {"kubernetes.io/os": "linux"}, {}, cordoned=False) is None
    long = {"purser.dev/cordoned-by": "x\n" * 100_000, "purser.dev/driver-upgrade-failure": "x\n" * 100_000}
    assert len(msgspec.json.encode(rollout_node("n", labels, long, cordoned=True))) < 2000


def test_readers_ask_for_the_operators_policies():
    assert CLUSTER_POLICIES.path() == OPERATORS_POLICIES.path()
