"""Events about disputed GPUs say what is so now: a text that is another one is said, and the same one is not."""

import asyncio
from types import SimpleNamespace

import msgspec
from tests.unit.agent.builders import A, B, part

from purser.agent.host.latest import Latest
from purser.agent.reporting.events import DisputeEvents
from purser.core.grant.disputes import DisputeReason, HeldPod, HeldReason, NodeDisputes
from purser.kube.objects import ObjectMeta, Pod

POD = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="u"))


class Said:
    def __init__(self):
        self.of_pod, self.of_node = [], []

    def event(self, about, reason, message, type="Normal"):
        if about.kind == "Pod":
            self.of_pod.append(message)
        else:
            self.of_node.append((reason, message))


async def said_of(*reports):
    """What is said on the pod and on the node after each of these reports of a pod."""
    said, told = Said(), Latest(None)
    pods = SimpleNamespace(get=lambda _: POD)
    task = asyncio.create_task(DisputeEvents(said, "n", pods, told).run())
    found = []
    for each in reports:
        told.set(NodeDisputes("n", held=() if each is None else (each,)))
        for _ in range(3):
            await asyncio.sleep(0)
        found.append((said.of_pod, said.of_node))
        said.of_pod, said.of_node = [], []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


def held(why, **fields):
    return HeldPod("ns", "p", "u", why, **fields)


async def test_a_pod_is_told_again_when_the_cause_or_the_gpus_are_others():
    stranger = held(HeldReason.NEVER_GRANTED, uuids=(A,))
    more = msgspec.structs.replace(stranger, uuids=(A, B))
    missing = held(HeldReason.GRANT_MISSING, containers=(part("main", A),))
    untrusted = held(HeldReason.GRANT_UNTRUSTED, containers=(part("main", A),))
    of_pod = [pods for pods, _ in await said_of(stranger, more, missing, untrusted)]
    assert [len(each) for each in of_pod] == [1, 1, 1, 1]
    words = (f"holds {A} without", f"holds {A}, {B} without", "annotation was removed", "no longer valid")
    assert all(word in said for word, (said,) in zip(words, of_pod, strict=True))


async def test_what_was_said_already_is_not_said_again():
    """Amounts are in the report, and not in what people read."""
    missing = held(HeldReason.GRANT_MISSING, containers=(part("main", A),))
    less = held(HeldReason.GRANT_MISSING, containers=(part("main", A, memory_mib=500),))
    first, again, settled, anew = await said_of(missing, less, None, missing)
    assert (len(first[0]), len(first[1])) == (1, 1)
    assert again == ([], [])
    settling = (DisputeReason.GPU_DISPUTE_SETTLED, "The records of the node's GPUs are consistent again")
    assert settled == ([], [settling])
    assert (len(anew[0]), len(anew[1])) == (1, 1)


async def test_a_pod_that_held_nothing_yet_is_told_once_it_does():
    none, one = held(HeldReason.NEVER_GRANTED), held(HeldReason.NEVER_GRANTED, uuids=(A,))
    assert [len(pods) for pods, _ in await said_of(none, one)] == [0, 1]
