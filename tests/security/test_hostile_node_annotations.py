"""A node's annotations are whoever's may write to the node: whatever stands there, the others get their operands."""

import msgspec

from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION, NODE_FACTS_ANNOTATION
from purser.operator.names import (
    GPU_MISSING_SINCE_ANNOTATION,
    LET_IN_ANNOTATION,
    MIG_STEP_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
)
from tests.unit.operator.world import World

ANNOTATIONS = (
    NODE_FACTS_ANNOTATION,
    MIG_RESULT_ANNOTATION,
    MIG_WANTED_ANNOTATION,
    MIG_STEP_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
    GPU_MISSING_SINCE_ANNOTATION,
    LET_IN_ANNOTATION,
)
TEXTS = {
    "deep": '{"x":' + "[" * 7000 + "]" * 7000 + "}",
    "infinite": "1e400",
    "odd": '"\\ud800"',
    "huge": "9" * 5000,
    "far": "9" * 300,
}


def test_nodes_annotations_stop_the_operator_for_no_other_node() -> None:
    world = World()
    world.add_policy(spec={"migManager": {"enabled": True}})
    for name in (*TEXTS, "one", "two", "three"):
        world.add_node(name)
    for _ in range(30):
        for name, text in TEXTS.items():
            node = world.nodes[name]
            hostile = dict.fromkeys(ANNOTATIONS, text)
            world.nodes[name] = msgspec.structs.replace(node, annotations={**node.annotations, **hostile})
        world.round()
        world.tick()
    for name in ("one", "two", "three"):
        assert "device-plugin" in world.deployed(name), name
