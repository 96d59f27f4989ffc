"""Four books of one node: after each has done its part nothing differs but what only a pod's end settles."""

import random

import msgspec
import pytest
from tests.tiers import IS_LONG, some

from purser.core.grant.disputes import HeldPod, HeldReason, NodeDisputes, RefusedPod, read_disputes, text_of
from purser.core.grant.reconcile import (
    DifferenceKind,
    NodeRecords,
    PodBook,
    SchedulerBook,
    differences,
    disputes_to_publish,
    expected_records,
)
from purser.core.ledger import Ledger, LedgerError, pod_usage
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.node.annotations import MAX_NODE_MESSAGE_BYTES

NODE = "n"
DEVICES = {uuid: Device(uuid, index, "T4", 1000, slots=3) for index, uuid in enumerate("abc")}
LEFT_TO_PODS = {DifferenceKind.GRANT_LOST, DifferenceKind.NEVER_GRANTED}


def a_grant(uid, uuid, memory):
    share = DeviceShare(uuid, memory, 0)
    return Grant(uid, "ns", uid, NODE, (ContainerGrant("main", ContainerKind.APP, (share,)),))


def cards(grant):
    return frozenset(pod_usage(grant))


def random_books(dice):
    """Pods that hold no more than there is, and books of them that are wrong in every way."""
    truth = Ledger()
    truth.set_inventory(NodeInventory(NODE, tuple(DEVICES.values())))
    pods, agent, kubelet = [], {}, {}
    for number in range(dice.randrange(8)):
        uid = f"p{number}"
        grant = a_grant(uid, dice.choice("abc"), dice.choice([100, 400, 900]))
        try:
            truth.reserve(grant)
        except LedgerError:
            continue
        started = dice.random() < 0.8
        if dice.random() < 0.2 and started:  # another plugin's pod
            pods.append(PodBook("ns", uid, uid, started=True))
            kubelet[f"ns/{uid}"] = cards(grant)
            continue
        lost = dice.random() < 0.4 and started
        problem = dice.choice(["", "it is forged"]) if lost else ""
        pods.append(PodBook("ns", uid, uid, True, started, None if lost else grant, problem))
        if started:
            kubelet[f"ns/{uid}"] = cards(grant)
            if lost or dice.random() < 0.7:
                agent[uid] = grant
    for number in range(dice.randrange(3)):  # never took anything
        pods.append(PodBook("ns", f"x{number}", f"x{number}", started=dice.random() < 0.5))
    if dice.random() < 0.3:
        agent["ended"] = a_grant("ended", "a", 100)
    stale = HeldPod("ns", "ended", "ended", HeldReason.NEVER_GRANTED, uuids=("b",))
    told = dice.choice([None, NodeDisputes(NODE), NodeDisputes(NODE, (stale,))])
    scheduler = SchedulerBook({"ended": a_grant("ended", "c", 900)}, {"a": "once"})
    return NodeRecords(NODE, DEVICES, tuple(pods), agent, kubelet, told, scheduler)


def settled(books):
    """Each does what it does in life: kubelet first, then the agent, then the scheduler."""
    live = {pod.key for pod in books.pods}
    kubelet = {key: held for key, held in books.kubelet.items() if key in live}
    uids = {pod.uid for pod in books.pods}
    adopted = {pod.uid: pod.grant for pod in books.pods if pod.grant is not None and kubelet.get(pod.key)}
    agent = {uid: grant for uid, grant in books.agent.items() if uid in uids} | adopted
    books = msgspec.structs.replace(books, kubelet=kubelet, agent=agent)
    told = read_disputes(text_of(disputes_to_publish(books)), NODE)
    return msgspec.structs.replace(books, disputes=told, scheduler=expected_records(NODE, DEVICES, books.pods, told))


@pytest.mark.parametrize("seed", some(range(300), 10))
def test_after_settling_nothing_differs_and_no_gpu_is_given_twice(seed):
    books = settled(random_books(random.Random(seed)))
    assert {each.kind for each in differences(books)} <= LEFT_TO_PODS
    ledger = Ledger()
    ledger.set_inventory(NodeInventory(NODE, tuple(DEVICES.values())))
    for grant in books.scheduler.grants.values():
        ledger.reserve(grant)  # what counts fits
    for pod in books.pods:
        counted = books.scheduler.grants.get(pod.uid)
        taken = cards(counted) if counted else frozenset()
        for uuid in books.kubelet.get(pod.key, frozenset()):
            assert uuid in taken or uuid in books.scheduler.closed
    held = frozenset().union(*books.kubelet.values())
    assert books.scheduler.closed.keys() <= held  # nothing that nobody holds is lost


@pytest.mark.parametrize("seed", some(range(100), 10))
def test_when_the_pods_in_the_way_have_ended_everything_can_be_had_again(seed):
    books = settled(random_books(random.Random(seed)))
    honest = tuple(pod for pod in books.pods if pod.grant is not None)
    books = settled(msgspec.structs.replace(books, pods=honest))
    assert differences(books) == ()
    assert books.scheduler.closed == {}
    assert books.disputes.is_empty


def test_each_difference_says_who_settles_it():
    twice = tuple(PodBook("ns", uid, uid, True, True, a_grant(uid, "a", 900)) for uid in ("p", "q"))
    gone = PodBook("ns", "r", "r", True, True, a_grant("r", "z", 1))
    doubt = PodBook("ns", "s", "s", True, True)
    refused = RefusedPod("ns", "t", "t", "DeviceOvercommitted", ("b",), ("ns/p",))
    told = NodeDisputes(NODE, refused=(refused,))
    found = differences(NodeRecords(NODE, DEVICES, (*twice, gone, doubt), disputes=told))
    assert [(each.kind, each.pod, each.uuids) for each in found] == [
        (DifferenceKind.DEVICE_UNKNOWN, "ns/r", ("z",)),
        (DifferenceKind.GRANTED_TWICE, "", ("a",)),
        (DifferenceKind.UNREPORTED, "ns/s", ()),
        (DifferenceKind.REFUSED, "ns/t", ("b",)),
    ]
    assert all(each.settled_by for each in found)


@pytest.mark.parametrize("count", [1, 100, 10_000 if IS_LONG else 1_000])
def test_a_report_can_be_read_however_many_pods_it_has(count):
    held = tuple(
        HeldPod("n" * 63, f"p{n}", f"u{n}", HeldReason.GRANT_MISSING, a_grant(f"u{n}", "abc"[n % 3], 1).containers)
        for n in range(count)
    )
    text = text_of(NodeDisputes(NODE, held))
    assert len(text) <= MAX_NODE_MESSAGE_BYTES
    told = read_disputes(text, NODE)
    assert frozenset(told.closed).union(*(each.gpus for each in told.held)) == frozenset("abc"[: min(count, 3)])


def test_every_pod_of_a_kubelet_can_be_reported_as_empty():
    """Else they would close their node's cards, whoever made them."""
    held = tuple(HeldPod("n" * 63, f"{n:0253}", f"{n:036}", HeldReason.GRANT_UNTRUSTED) for n in range(110))
    told = read_disputes(text_of(NodeDisputes(NODE, held)), NODE)
    pods = tuple(PodBook(each.namespace, each.pod, each.uid, started=True, problem="forged") for each in held)
    assert expected_records(NODE, DEVICES, pods, told) == SchedulerBook({}, {})


@pytest.mark.parametrize(
    ("pod", "closed"),
    [
        (PodBook("ns", "p", "p", started=True), "abc"),
        (PodBook("ns", "p", "p", False, True, families=frozenset({"hygon.com/dcunum"})), "d"),
        (PodBook("ns", "p", "p", True, True, families=frozenset({"hygon.com/dcunum"})), "abcd"),
        (PodBook("ns", "p", "p", False, True, families=frozenset({"amd.com/gpu"})), ""),
        (PodBook("ns", "p", "p", False, False, families=frozenset({"hygon.com/dcunum"})), ""),
        (PodBook("ns", "p", "p", False, True, a_grant("p", "a", 1), families=frozenset({"hygon.com/dcunum"})), ""),
    ],
)
def test_a_pod_without_a_grant_closes_the_devices_that_it_asks_for(pod, closed):
    devices = {**DEVICES, "d": Device("d", 3, "Z100L", 1000, slots=4, resource="hygon.com/dcunum")}
    assert "".join(sorted(expected_records(NODE, devices, [pod], None).closed)) == closed


def test_a_pod_in_a_forged_phase_closes_its_gpus_and_is_reported():
    word = HeldPod("default", "p", "p", HeldReason.ENDED, uuids=("a",))
    told = disputes_to_publish(NodeRecords("n1", {}), ended=[word])
    assert told.held == (word,)
    assert expected_records("n1", DEVICES, [], told).closed.keys() == {"a"}
    seen = {
        listed: [
            each.kind for each in differences(NodeRecords("n1", {}, disputes=told, kubelet=listed and dict(listed)))
        ]
        for listed in (None, (("default/p", frozenset("a")),), (("default/q", frozenset()),))
    }
    assert list(seen.values()) == [
        [DifferenceKind.KUBELET_BEHIND],
        [DifferenceKind.KUBELET_BEHIND],
        [DifferenceKind.REPORT_STALE],
    ]
