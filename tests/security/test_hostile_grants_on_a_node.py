"""A pod's annotations are its author's: whatever stands there, the other pods of the node get their devices."""

import base64
import json

import msgspec
import pytest

from purser.core.model import Grant
from purser.core.names import GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION, WEBHOOK_LABELS
from tests.unit.agent import conftest
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

# What an agent runs in, for these tests as well.
api, client, folder, driver = conftest.api, conftest.client, conftest.folder, conftest.driver
kubelet, world, short_waits = conftest.kubelet, conftest.world, conftest.short_waits

WELL_FORMED = msgspec.json.encode(Grant("uid", "default", "bad", NODE, ())).decode()
NO_GRANTS = {
    "deep": {GRANT_ANNOTATION: '{"x":' + "[" * 20_000 + "]" * 20_000 + "}"},
    "no-ascii": {GRANT_ANNOTATION: WELL_FORMED, GRANT_SIGNATURE_ANNOTATION: "é"},
    "long-signature": {GRANT_ANNOTATION: WELL_FORMED, GRANT_SIGNATURE_ANNOTATION: "A" * 100_000},
    "huge": {GRANT_ANNOTATION: json.dumps({"pod_uid": 10**400})},
    "infinite": {GRANT_ANNOTATION: '{"pod_uid":1e400,"x":1e400}'},
    "long": {GRANT_ANNOTATION: " " * 200_000},
    "empty": {GRANT_ANNOTATION: "", GRANT_SIGNATURE_ANNOTATION: ""},
    "odd-text": {GRANT_ANNOTATION: '"\\ud800"', GRANT_SIGNATURE_ANNOTATION: "\N{ROMAN NUMERAL ONE}" * 9},
    "other-words": dict.fromkeys(
        ("purser.dev/init-resources", "hami.io/vgpu-devices-allocated", "nvidia.com/use-gputype"), "[" * 20000
    ),
}


async def _hostile_pods(world):
    labels = dict.fromkeys(WEBHOOK_LABELS, "ignore")
    for name, annotations in NO_GRANTS.items():
        uid = (await world.pod(name, bound=False, counts={}, annotations=annotations, plain=("main",))).pod_uid
        # Right in everything but its signature, so that the signature is looked at.
        if annotations.get(GRANT_ANNOTATION) == WELL_FORMED:
            text = msgspec.json.encode(Grant(uid, "default", name, NODE, ())).decode()
            annotations = annotations | {GRANT_ANNOTATION: text}
        metadata = {"annotations": annotations, "labels": labels}
        await world.client.patch_merge(conftest.PODS, name, {"metadata": metadata}, "default")
        await world.client.bind("default", name, uid, NODE, {})


async def test_no_annotation_of_a_pod_keeps_others_from_their_devices(world, kubelet):
    a, b, *_ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await _hostile_pods(world)
        await world.pod("honest", part("main", a))
        await kubelet.admit("default/honest", [("main", 1)])
        assert [each.partition("::")[0] for each in kubelet.pods["default/honest"]["main"]] == [a]
    async with world.agent() as agent:  # and with them there from the start
        await eventually(agent.ready)
        await eventually(lambda: len(kubelet.devices) == 16)
        await world.pod("later", part("main", b))
        await kubelet.admit("default/later", [("main", 1)])
        assert [each.partition("::")[0] for each in kubelet.pods["default/later"]["main"]] == [b]
        assert await agent.metric("purser_object_failures_total", resource="pods") is None


async def test_a_signature_over_nothing_is_none(world, kubelet):
    a, *_ = world.uuids
    signature = {GRANT_SIGNATURE_ANNOTATION: base64.b64encode(world.key.sign(b"")).decode()}
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("lone", counts={"main": 1}, annotations=signature)
        await world.pod("honest", part("main", a))
        await kubelet.admit("default/honest", [("main", 1)])
