"""Whatever stands on nodes and policies, a round comes to an end."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples
from tests.unit.operator.world import World, settled_world

from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION, NODE_FACTS_ANNOTATION
from purser.operator import names
from purser.operator.deciding import nodes_to_inspect, reconcile, upgrade_fleet
from purser.operator.model import PatchNode
from purser.operator.order import Operand

LABELS = [
    *(value for key, value in vars(names).items() if key.endswith("_LABEL") and isinstance(value, str)),
    *(each.deploy_label for each in Operand),
    *names.NFD_GPU_LABELS,
]
ANNOTATIONS = [
    *(value for key, value in vars(names).items() if key.endswith("_ANNOTATION") and isinstance(value, str)),
    NODE_FACTS_ANNOTATION,
    MIG_WANTED_ANNOTATION,
    MIG_RESULT_ANNOTATION,
]
STATES = ["upgrade-required", "pod-restart-required", "upgrade-failed", "paused-for-mig-change"]
WORDS = st.sampled_from(["", "true", "false", "{}", "[]", "1", "-1", "nan", "1e400", "{", *STATES]) | any_text(
    max_size=8
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | any_text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(
    labels=st.dictionaries(st.sampled_from(LABELS), WORDS, max_size=8),
    annotations=st.dictionaries(st.sampled_from(ANNOTATIONS), WORDS, max_size=8),
    fields=st.fixed_dictionaries(
        {},
        optional={key: any_text(max_size=8) for key in ("os_image", "kernel", "runtime", "boot_id", "kubelet_version")},
    ),
)
@examples(50)
def test_whatever_stands_on_a_node(labels: dict[str, str], annotations: dict[str, str], fields: dict[str, str]) -> None:
    world = World()
    world.add_policy(finalizers=[names.FINALIZER])
    world.add_node("good")
    world.add_node("odd")
    world.set_node("odd", labels={**world.nodes["odd"].labels, **labels}, annotations=annotations, **fields)
    assert nodes_to_inspect(world.snapshot()) <= set(world.nodes)
    assert not isinstance(upgrade_fleet(world.snapshot()), str)
    world.run(3)
    assert world.deployed("good")["driver"] == "true"


@given(status=JSON, spec=JSON, annotations=st.none() | st.dictionaries(st.sampled_from(ANNOTATIONS), WORDS))
@examples(50)
def test_whatever_a_policy_says(status: Any, spec: Any, annotations: Any) -> None:
    world = World()
    world.add_policy(finalizers=[names.FINALIZER], annotations=annotations)
    world.policies["gpus"] |= {"status": status, "spec": spec}
    world.add_node("a")
    for _ in range(2):
        world.round()
    assert world.status()["state"] == "notReady"


def test_a_status_that_cannot_be_read_is_rewritten_and_does_no_harm() -> None:
    world = settled_world("a")
    world.policies["gpus"]["status"] = {"state": "splendid", "operands": 5}
    outcomes = [world.round() for _ in range(2)]
    assert not any(isinstance(each, PatchNode) for outcome in outcomes for each in outcome.actions)
    assert world.status()["state"] == "ready"


def test_policies_in_no_state_to_be_active_have_no_fleet() -> None:
    world = World()
    assert upgrade_fleet(world.snapshot()) == "no ClusterPolicy exists"
    world.add_policy(spec={"devicePlugin": {"slots": 0}})
    told = upgrade_fleet(world.snapshot())
    assert isinstance(told, str) and "spec.devicePlugin.slots" in told
    assert reconcile(world.snapshot()).gauges["reconciliation_status"] == 0.0
