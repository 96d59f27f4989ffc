"""Annotations of a pod that leave its grant no room: the Binding would fail for ever, after others went for it."""

import json

import pytest

from purser.core.names import GRANT_ANNOTATION
from purser.core.pod.manifest import PodManifest
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import DecisionReason, decode_review
from purser.scheduler.webhook.rules import MAX_ANNOTATION_BYTES, PLACEMENT_RULES, first_objection
from tests.unit.scheduler.reviews import container, pod, review

GPU = {"nvidia.com/gpu": "1"}


def decide(annotations, limits=GPU):
    body = pod(container(limits=limits), annotations=annotations)
    return Mutation().review(decode_review(json.dumps(review(body)).encode()))


@pytest.mark.parametrize(
    "annotations",
    [{"a": "x" * MAX_ANNOTATION_BYTES}, {f"k{n}": "x" * 1020 for n in range(161)}, {"a": "é" * 90_000}],
    ids=["one", "many", "bytes, not characters"],
)
def test_a_pod_that_leaves_its_grant_no_room_is_not_let_in(annotations):
    decision = decide(annotations)
    assert (decision.allowed, decision.why) == (False, DecisionReason.NO_ROOM_FOR_GRANT)
    assert "Move the data to a ConfigMap" in decision.message


def test_what_leaves_room_is_let_in_and_so_is_any_pod_without_gpus():
    assert decide({"a": "x" * (MAX_ANNOTATION_BYTES - 1)}).allowed
    assert decide({"a": "x" * (MAX_ANNOTATION_BYTES + 1)}, limits={"cpu": "1"}).allowed


def test_nor_is_it_placed_where_they_grew_later():
    grown = PodManifest("u", "ns", "p", {"a": "x" * MAX_ANNOTATION_BYTES}, ())
    assert first_objection(PodReading(grown), PLACEMENT_RULES).why is DecisionReason.NO_ROOM_FOR_GRANT
    granted = PodManifest("u", "ns", "p", {"a": "x" * 1000, GRANT_ANNOTATION: "x" * MAX_ANNOTATION_BYTES}, ())
    assert first_objection(PodReading(granted), PLACEMENT_RULES) is None
