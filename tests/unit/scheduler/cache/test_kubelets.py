"""What nodes say of their kubelets reaches the fleet, whatever they say; and so do the pods that are on their way."""

import json
from random import Random

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.conformance.kubelet.prediction.hardware import NODE
from tests.conformance.kubelet.prediction.pods import requesting_pod
from tests.tiers import some
from tests.unit.scheduler.kubelet_world import aligning, node_object, pod_object, report_text, world

from purser.core.kubelet.config import CpuPolicy, KubeletConfig, MemoryPolicy, TopologyPolicy
from purser.core.kubelet.report import encode, report_of
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Grant
from purser.core.placement import Placement, Refusal, place
from purser.kube.objects import MIRROR_POD_ANNOTATION, STATIC_POD_UID_ANNOTATION, Node, OwnerReference

GUARANTEED = {"cpu": "1", "memory": "1Gi"}


def arrivals(fleet) -> list[str]:
    return [arrival.pod.uid for arrival in fleet.node(NODE).kubelet.arrivals]


@pytest.fixture
def live():
    """A node whose CPU manager gives Guaranteed pods their own CPUs."""
    seed = 0
    while (found := aligning(f"static {seed}")).truth.cpus is None:
        seed += 1
    return found


@pytest.fixture
def told(live):
    fleet, kubelets = world(live)
    kubelets.put_node(node_object(report_text(live)))
    return fleet, kubelets


def test_a_report_is_what_is_known_of_a_kubelet_until_it_is_taken_back(live):
    fleet, kubelets = world(live)
    assert fleet.node(NODE).kubelet is None
    kubelets.put_node(node_object(report_text(live)))
    assert fleet.node(NODE).kubelet.node.config == live.node.config
    kubelets.put_node(node_object(None))
    assert fleet.node(NODE).kubelet is None


def test_a_changed_report_replaces_the_one_before(live, told):
    fleet, kubelets = told
    config = msgspec.structs.replace(live.node.config, topology_policy=TopologyPolicy.BEST_EFFORT)
    changed = msgspec.structs.replace(live.node, config=config)
    kubelets.put_node(node_object(encode(report_of(changed, live.truth))))
    assert fleet.node(NODE).kubelet.node.config.topology_policy is TopologyPolicy.BEST_EFFORT


def test_an_unchanged_report_costs_nothing(live, told):
    fleet, kubelets = told
    before = fleet.node(NODE)
    kubelets.put_node(node_object(report_text(live)))
    assert fleet.node(NODE) is before


def test_a_kubelet_that_aligns_nothing_is_not_looked_into(live):
    fleet, kubelets = world(live)
    idle = msgspec.structs.replace(live.node, config=KubeletConfig())
    kubelets.put_node(node_object(encode(report_of(idle))))
    assert fleet.node(NODE).kubelet is None
    assert not fleet.has_kubelets


@pytest.mark.parametrize("text", ["{", "[]", '{"format":2}', "null", "\x00", '"' * 5, "{}" * 200_000])
def test_a_malformed_report_replaces_a_good_one_with_one_event(told, text):
    fleet, kubelets = told
    with capture_logs() as logs:
        kubelets.put_node(node_object(text))
        kubelets.put_node(node_object(text))
    assert fleet.node(NODE).kubelet is None
    assert [log["event"] for log in logs] == ["The report on the node's kubelet is invalid, so it is ignored"]


def test_a_removed_node_is_forgotten_and_known_again_when_it_comes_back(live, told):
    fleet, kubelets = told
    kubelets.remove_node(node_object(report_text(live)))
    assert fleet.node(NODE).kubelet is None
    kubelets.put_node(node_object(report_text(live)))
    assert fleet.node(NODE).kubelet is not None


def test_a_pod_is_on_its_way_from_binding_to_end(told):
    fleet, kubelets = told
    pod = pod_object("u", GUARANTEED)
    kubelets.put_pod(pod)
    kubelets.put_pod(pod)
    assert arrivals(fleet) == ["u"]
    kubelets.remove_pod(pod)
    assert arrivals(fleet) == []
    kubelets.remove_pod(pod)


def test_pods_for_which_kubelet_has_nothing_to_find_are_not_on_their_way(told):
    fleet, kubelets = told
    kubelets.put_pod(pod_object("shared CPUs", {"cpu": "500m", "memory": "1Gi"}))
    kubelets.put_pod(pod_object("unknown device", {"cpu": "500m", "memory": "1Gi", "example.com/none": "1"}))
    kubelets.put_pod(pod_object("no GPU", {"nvidia.com/gpu": "0"}))
    kubelets.put_pod(pod_object("no grant", {"nvidia.com/gpu": "1"}))
    held = fleet.node(NODE).kubelet.state.memory
    assert arrivals(fleet) == ([] if held is None else ["shared CPUs", "unknown device"])


def test_a_static_pods_image_has_the_uid_that_kubelet_knows(told):
    fleet, kubelets = told
    mirror = image("api-uid", "kubelets-uid")
    kubelets.put_pod(mirror)
    assert arrivals(fleet) == ["kubelets-uid"]
    kubelets.remove_pod(mirror)
    assert arrivals(fleet) == []


def image(uid, of):
    """What kubelet shows the API of a static pod."""
    plain = pod_object(uid, GUARANTEED, annotations={STATIC_POD_UID_ANNOTATION: of, MIRROR_POD_ANNOTATION: of})
    owner = OwnerReference(kind="Node", name=NODE, uid="n", controller=True)
    return replace(plain, metadata=replace(plain.metadata, owner_references=(owner,)))


def test_no_annotation_makes_one_pod_take_the_place_of_another(told):
    fleet, kubelets = told
    kubelets.put_pod(pod_object("victim", GUARANTEED))
    for forger in (
        pod_object("plain", GUARANTEED, annotations={STATIC_POD_UID_ANNOTATION: "victim"}),
        image("image", "victim"),
    ):
        kubelets.put_pod(forger)
        assert arrivals(fleet)[0] == "victim"
        kubelets.remove_pod(forger)
        assert arrivals(fleet) == ["victim"]


def test_a_pod_with_malformed_amounts_is_reported_and_left_out(told):
    fleet, kubelets = told
    with capture_logs() as logs:
        kubelets.put_pod(pod_object("u", {"cpu": "plenty"}))
    assert arrivals(fleet) == []
    assert [log["event"] for log in logs] == ["A pod's resources cannot be read"]


def reserved(live, told):
    """The first random request that the node takes, with its grant."""
    fleet, kubelets = told
    rng = Random("reserved")
    while True:
        request = requesting_pod(rng, "u", live.wishes)
        if isinstance(place(fleet.node(NODE), request), Placement):
            kubelets.assume(NODE, request)
            share = DeviceShare(live.inventory.devices[0].uuid, 1, 0)
            part = ContainerGrant(request.containers[0].name, ContainerKind.APP, (share,))
            grant = Grant("u", "default", "u", NODE, (part,))
            fleet.ledger.reserve(grant)
            return grant


def test_a_reservation_is_on_its_way_and_its_cancellation_takes_it_back(live, told):
    fleet, kubelets = told
    grant = reserved(live, told)
    assert arrivals(fleet) == ["u"]
    fleet.ledger.release("u")
    kubelets.forget_assumed(grant)
    assert arrivals(fleet) == []


def test_a_cancelled_reservation_leaves_a_pod_alone_that_was_bound_elsewhere(live, told):
    fleet, kubelets = told
    grant = reserved(live, told)
    kubelets.put_pod(pod_object("u", GUARANTEED, node="elsewhere"))
    kubelets.forget_assumed(grant)
    assert fleet.pod_node("u") == "elsewhere"


def test_without_kubelets_view_of_a_pod_nothing_is_expected(live, told):
    fleet, kubelets = told
    request = msgspec.structs.replace(requesting_pod(Random(1), "u", live.wishes), kubelet_pod=None)
    kubelets.assume(NODE, request)
    assert fleet.pod_node("u") is None


# What a node may say


def mutations(rng: Random, text: str) -> str:
    """The text, damaged in one of the ways in which texts and their writers go wrong."""
    kind = rng.random()
    if kind < 0.15:
        return text[: rng.randrange(len(text))]
    if kind < 0.3:
        place = rng.randrange(len(text))
        return text[:place] + rng.choice('0123456789[]{},:"-x\\') + text[place + 1 :]
    value = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = mutated(rng, value)
    return json.dumps(value)


ABSURD = {
    int: (0, 1, -1, 7, 63, 64, 1023, 1024, 10**9, 2**63, -(2**62)),
    str: (
        "",
        "0",
        "0-8191",
        "8191",
        "0-3,2-5",
        "v1.20.0",
        "v1.21.7",
        "v9",
        "none",
        "static",
        "restricted",
        "u",
        "nic1",
    ),
    bool: (True, False),
    list: ([], [[]], [0], [0, 0], [1023]),
    dict: ({}, {"memory": 1}, {"a": {}}),
}


def mutated(rng: Random, value):
    """One part of a document replaced, doubled, removed or exchanged; most often by something of its kind."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(sorted(value))
        if rng.random() < 0.05:
            return {other: of for other, of in value.items() if other != key}
        return {**value, key: mutated(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        if rng.random() < 0.1:
            return value[:place] + value[place + 1 :]
        if rng.random() < 0.1:
            return [*value, value[place]]
        return [*value[:place], mutated(rng, value[place]), *value[place + 1 :]]
    if type(value) is int and rng.random() < 0.6:
        return value + rng.choice((-2, -1, 1, 2, 8, 100))
    kind = type(value) if rng.random() < 0.95 and value is not None else rng.choice(sorted(ABSURD, key=str))
    return rng.choice(ABSURD.get(kind, (None,)))


@pytest.mark.parametrize("seed", some(range(6), 6))
def test_whatever_a_node_says_the_cache_takes_it_and_decisions_are_made(seed):
    rng = Random(f"fuzz {seed}")
    counted = 0
    for number in range(12):
        live = aligning(f"fuzz {seed} {number}")
        for _ in range(8):
            live.pass_time()
            request = requesting_pod(rng, live.next_uid(), live.wishes)
            if isinstance(verdict := place(live.known, request), Placement):
                live.bind(request, verdict)
        text = report_text(live)
        fleet, kubelets = world(live)
        for coming in live.coming:
            fleet.put_pod(NODE, coming.pod)
        for _ in range(25):
            with capture_logs():
                kubelets.put_node(node_object(mutations(rng, text)))
            counted += fleet.node(NODE).kubelet is not None
            for uid in range(2):
                place(fleet.node(NODE), requesting_pod(rng, f"new{uid}", live.wishes))
            fleet.without(NODE, live.active)
    assert counted > 50


def many_nodes(live, count: int, **config) -> Node:
    """A report of a machine with this many NUMA nodes, each with CPUs and memory."""
    report = json.loads(report_text(live))
    report["version"] = "v1.36.2"
    report["config"] = {
        "topology_policy": "best-effort",
        "topology_options": {"max_allowable_numa_nodes": 64},
        **config,
    }
    numbers = range(count)
    report["machine"] = {
        "numa_nodes": [{"node": n, "memory": {"memory": 2**34}} for n in numbers],
        "cpus": [[n, n, n, f"{4 * n}-{4 * n + 3}", [[4 * n, 4]]] for n in numbers],
        "num_sockets": count,
    }
    report["cpus"] = {"default": f"0-{4 * count - 1}", "reserved": "0"}
    report["memory"] = [[n, [n], 0, {"memory": [2**34, 0, 2**34, 0, 2**34]}] for n in numbers]
    report["held"] = []
    return node_object(json.dumps(report))


@pytest.mark.parametrize("count", [11, 34, 1000])
def test_machines_that_nobody_could_reckon_with_are_not_reckoned_with(live, count):
    fleet, kubelets = world(live)
    static = {"cpu_policy": CpuPolicy.STATIC, "memory_policy": MemoryPolicy.STATIC, "reserved_cpus": "0"}
    with capture_logs() as logs:
        kubelets.put_node(many_nodes(live, count, **static))
    assert fleet.node(NODE).kubelet is None
    assert logs


def test_ten_numa_nodes_are(live):
    fleet, kubelets = world(live)
    options = {"distribute_cpus_across_numa": True}
    static = {"cpu_policy": "static", "memory_policy": "Static", "reserved_cpus": "0", "cpu_options": options}
    kubelets.put_node(many_nodes(live, 10, **static))
    assert fleet.node(NODE).kubelet is not None
    request = requesting_pod(Random(3), "u", live.wishes)
    assert isinstance(place(fleet.node(NODE), request), Placement | Refusal)


BOMBS = {
    "CPUs": lambda report: report["machine"].update(cpus=[[0, 0, 0, "0-8191", [[0, 8192]]]] * 3000),
    "devices": lambda report: report.update(
        resources={"example.com/x": {"groups": [[[0], True, [[f"d{n}-", "0-999999998"] for n in range(1000)]]]}}
    ),
    "places": lambda report: report.update(
        resources={"example.com/x": {"groups": [[[0] * 20000, True, [["d", "0-60000"]]]]}},
        held=[["u", "c", {"example.com/x": [["d", "0-60000"]]}]],
    ),
    "depth": lambda report: report.update(held=json.loads("[" * 400 + "]" * 400)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_short_text_that_would_become_much_is_refused(live, bomb):
    fleet, kubelets = world(live)
    report = json.loads(report_text(live))
    BOMBS[bomb](report)
    kubelets.put_node(node_object(json.dumps(report)))
    assert fleet.node(NODE).kubelet is None
