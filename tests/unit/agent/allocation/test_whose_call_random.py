"""Whole nodes admitting pods in random order, with rejected pods that kubelet still lists.

A model kubelet admits pods one at a time as the real ones do. Whatever happens, a container is never given another
grant's devices, and without leftovers every call is resolved.
"""

from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.agent.builders import A, B, C, D, grant, grants_of, init, listed, part, slot

from purser.agent.allocation.admission import resolve
from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall
from purser.core.model import ContainerKind

SLOTS = 40
CARDS = (A, B, C, D)

cards = st.lists(st.sampled_from(CARDS), min_size=1, max_size=3, unique=True)
amounts = st.sampled_from([1000, 2000])


@st.composite
def pods(draw, name):
    containers = [part(f"c{place}", *draw(cards), memory_mib=draw(amounts)) for place in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):  # as placement does: what init containers had goes to the first container
        containers.insert(0, init("init", *containers[0].uuids, memory_mib=draw(amounts)))
    return grant(name, *containers)


class Kubelet:
    """Lists, hands out free ids by the plugin's preference, and leaves rejected pods in the list."""

    def __init__(self):
        self.free = {slot(card, number) for card in CARDS for number in range(SLOTS)}
        self.pods = {}
        self.served = {}

    def listing(self):
        return [listed(name, **containers) for name, containers in self.pods.items()]

    def start(self, grant):
        self.pods[grant.pod] = {p.container: () for p in grant.containers if p.kind is not ContainerKind.INIT}


def admit(kubelet, pod, grants, stop_at):
    """Admit one pod, or reject it before its container number ``stop_at``; yields (part, turn)."""
    kubelet.start(pod)
    reusable = ()
    for place, wanted in enumerate(pod.containers):
        if place == stop_at:
            return
        must = reusable if len(reusable) <= len(wanted.shares) else ()
        ask = PreferredAllocationCall(len(wanted.shares), tuple(sorted(kubelet.free | set(must))), must)
        preferred = resolve(ask, kubelet.listing(), grants, kubelet.served).turn
        if preferred is None:
            yield wanted, None
            return
        ids = ask.answer(preferred.part)
        turn = resolve(AllocateCall(ids), kubelet.listing(), grants, kubelet.served).turn
        yield wanted, turn
        if turn is None:
            return
        kubelet.free -= set(ids)
        kubelet.served[turn.grant.pod_uid] = kubelet.served.get(turn.grant.pod_uid, frozenset()) | {turn.part.container}
        if wanted.kind is ContainerKind.INIT:
            reusable = ids
        else:
            kubelet.pods[pod.pod][wanted.container] = ids
            reusable = ()


@st.composite
def nodes(draw):
    grants = [draw(pods(f"pod-{place}")) for place in range(draw(st.integers(1, 6)))]
    return draw(st.permutations(grants)), [draw(st.none() | st.integers(0, 3)) for _ in grants]


@examples(100)
@given(nodes())
def test_no_container_is_ever_given_another_grants_share(node):
    grants, stops = node
    kubelet, verified = Kubelet(), grants_of(*grants)
    for pod, stop_at in zip(grants, stops, strict=True):
        for wanted, turn in admit(kubelet, pod, verified, stop_at):
            if turn is not None:
                assert set(turn.part.shares) == set(wanted.shares)


@examples(100)
@given(nodes())
def test_every_call_is_resolved_to_its_pod_when_rejected_pods_are_known_to_have_ended(node):
    grants, stops = node
    kubelet, verified = Kubelet(), grants_of(*grants)
    for pod, stop_at in zip(grants, stops, strict=True):
        for wanted, turn in admit(kubelet, pod, verified, stop_at):
            assert turn is not None
            assert (turn.grant.pod, turn.part.container) == (pod.pod, wanted.container)
        if stop_at is not None and stop_at < len(pod.containers):
            del verified[f"ns/{pod.pod}"]  # Failed in the API server; kubelet 1.20 still lists it
