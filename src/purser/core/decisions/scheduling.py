"""A scheduler's decisions, made again: the same fleet, ledger and evaluator, asked the same.

Each decision is made on the fleet as the log says it was. So one that comes out differently changes none of those after
it, and another policy is asked of the states that the logged one led to.
"""

import numpy as np
from msgspec.structs import replace

from purser.core.decisions.digest import digest, node_keys
from purser.core.decisions.masks import with_wide_masks
from purser.core.decisions.notes import DecisionInputs
from purser.core.decisions.numbered import item_at
from purser.core.decisions.records import (
    CandidatesSeen,
    CpuLists,
    DecisionDifference,
    DisputesTaken,
    FreeResourcesTaken,
    GrantReleased,
    GrantTaken,
    HeldForOthers,
    InventoryTaken,
    KubeletPodsTaken,
    KubeletTaken,
    MixLearnt,
    ModelsKnown,
    Moment,
    NodeGone,
    NodeOrder,
    NodeSeen,
    NodesJudged,
    Outcome,
    PlanMade,
    PodBound,
    PodGone,
    PodKey,
    PodPlaced,
    Record,
    RequestSeen,
    SchedulingStart,
)
from purser.core.decisions.simulation import describe_scores
from purser.core.decisions.transcript import counted_reasons
from purser.core.device.limits import exceeded_limits
from purser.core.fleet import NO_NOMINATED_USAGE, Fleet, NominatedUsage
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.kubelet_snapshot import KubeletPods, kubelet_report
from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.kubelet.report import check_coherence
from purser.core.kubelet.state import CpuState
from purser.core.model import ContainerGrant, NodeInventory, PodRequest
from purser.core.placement import Evaluation, Evaluator, Placement, Refusal
from purser.core.placement.mix import Mix
from purser.core.placement.policies import named_policy
from purser.core.placement.policies.plan import PricePlan
from purser.core.placement.policies.purser import Planner
from purser.core.placement.yielding import without_kept_nodes
from purser.core.wording import counted


class _LoggedMix:
    """The mix as the log has it."""

    def __init__(self) -> None:
        self.mix = Mix()
        self.epoch = 0

    def set_mix(self, mix: Mix) -> None:
        self.mix, self.epoch = mix, self.epoch + 1


class _LoggedPlanner(Planner):
    """Plans when the log says that the scheduler did; of its own accord where the log's policies needed no plan."""

    def __init__(self, source: _LoggedMix) -> None:
        super().__init__(source)
        self._is_told = False

    def plan_for(self, fleet: FleetArrays) -> PricePlan:
        """That of the last `plan_now`."""
        return self._plan if self._is_told and self._plan is not None else super().plan_for(fleet)

    def plan_now(self, fleet: FleetArrays) -> None:
        """The log has a plan here."""
        self._is_told = True
        self.forget()
        super().plan_for(fleet)


class SchedulingReplay:
    """Follows one file of a scheduler's log."""

    def __init__(self, start: SchedulingStart, policy: str | None = None) -> None:
        """``policy``: another one, asked in place of the log's for pods that name none. Raises ValueError for one that
        there is none of."""
        self.fleet = Fleet()
        """As the log has it so far."""
        self.at = start.at
        """Of the last `Moment`."""
        self._is_other = policy is not None
        self._mix = _LoggedMix()
        self._planner = _LoggedPlanner(self._mix)
        settings = start.policy if policy is None else replace(start.policy, **_policy_fields(policy))
        self._evaluator = Evaluator(self.fleet, settings, self._mix, self._planner)
        self._words = f"{settings.node}/{','.join(settings.gpu)}" if policy is None else policy
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._requests: list[PodRequest] = []
        self._candidates: list[list[str]] = []
        self.decisions = 0
        """So many were made again."""

    @property
    def evaluator(self) -> Evaluator:
        """What decides."""
        return self._evaluator

    def apply(self, record: Record) -> DecisionDifference | None:
        """Take a record; what is different, where it is a decision. Raises for a record that makes no sense here:
        ValueError with what is wrong, or whatever the kernel makes of it."""
        match record:
            case NodesJudged():
                return self._judge(record)
            case PodPlaced():
                return self._place(record)
            case _:
                self.follow(record)
        return None

    def asked(self, record: NodesJudged | PodPlaced) -> DecisionInputs:
        """What a decision depends on beside the fleet. Raises as `apply`."""
        return DecisionInputs(self._request(record.pod, record.request), record.quota, self._held(record.held))

    def candidates(self, record: NodesJudged) -> list[str]:
        """The nodes that a decision is about. Raises as `apply`."""
        return item_at(self._candidates, record.candidates, "list of candidates")

    def evaluate(self, asked: DecisionInputs, names: list[str]) -> Evaluation:
        """A decision on these nodes, as the scheduler makes it."""
        own = self.fleet.ledger.grant(asked.request.uid)
        found = self._evaluator.evaluate(asked.request, names, asked.left, own)
        return without_kept_nodes(found, self.fleet, asked.request, self._evaluator.policy, asked.left, asked.held)

    def follow(self, record: Record) -> None:
        """Take a record; a decision is not made again. Raises as `apply`."""
        match record:
            case NodesJudged() | PodPlaced():
                pass
            case CandidatesSeen():
                self._candidates.append(self._candidates_of(record.nodes))
            case RequestSeen():
                self._requests.append(record.request)
            case PlanMade():
                self._evaluator.refresh()
                self._planner.plan_now(self._evaluator.arrays)
            case MixLearnt():
                self._mix.set_mix(record.mix)
            case Moment():
                self.at = record.at
            case PodBound() | PodGone():
                pass
            case _:
                self._change(record)

    def _change(self, record: Record) -> None:
        """What is different of the fleet."""
        match record:
            case GrantTaken():
                self.fleet.ledger.adopt(replace(record.grant, node=self.node(record.node)), record.state)
            case GrantReleased():
                self._release(self.node(record.node), record.pod_uid)
            case FreeResourcesTaken():
                self.fleet.set_free_resources(self.node(record.node), record.free)
            case DisputesTaken():
                self.fleet.set_disputes(self.node(record.node), record.disputes)
            case InventoryTaken():
                name = self.node(record.node)
                _check_inventory(record.inventory)
                self.fleet.set_inventory(replace(record.inventory, node=name))
            case NodeSeen():
                self._add_node(record.name)
            case NodeGone():
                self._forget(self.node(record.node))
            case KubeletTaken():
                self._take_kubelet(record)
            case KubeletPodsTaken():
                name = self.node(record.node)
                self.fleet.restore_kubelet(name, self.fleet.kubelet_report(name), record.pods)
            case NodeOrder():
                self._evaluator.rank_nodes(list(map(self.node, record.nodes)))
            case ModelsKnown():
                self._evaluator.arrays.assign_model_numbers(record.models)
            case _:
                raise ValueError("this is not a scheduler's record")

    def _add_node(self, name: str) -> None:
        if name in self._numbers:
            raise ValueError(f"node {name} appears twice")
        self._numbers[name] = len(self._names)
        self._names.append(name)

    def _forget(self, name: str) -> None:
        self.fleet.remove_node(name)
        for uid in self.fleet.ledger.uids(name):
            self.fleet.ledger.release(uid)
        self.fleet.forget_free_resources(name)
        self.fleet.set_disputes(name, {})
        self.fleet.restore_kubelet(name, None, KubeletPods())

    def _release(self, name: str, uid: str) -> None:
        """The grant may be on another node by now."""
        if (grant := self.fleet.ledger.grant(uid)) is not None and grant.node == name:
            self.fleet.ledger.release(uid)

    def _take_kubelet(self, record: KubeletTaken) -> None:
        name, report = self.node(record.node), None
        if record.kubelet is not None:
            state = replace(with_wide_masks(record.state, record.masks), cpus=_cpus(record.cpus))
            check_coherence(record.kubelet, state)
            counted = None if record.counted is None else frozenset(record.counted)
            report = kubelet_report(record.kubelet, state, counted)
        self.fleet.restore_kubelet(name, report, self.fleet.kubelet_pods(name))

    def _judge(self, record: NodesJudged) -> DecisionDifference | None:
        asked, names = self.asked(record), self.candidates(record)
        self._set_clock(record.clock)
        found = self.evaluate(asked, names)
        self.decisions += 1
        best, score = self._best(found)
        if self._is_other:
            is_same = best == record.best
        else:
            numbers = np.array([self._numbers[name] for name in found.fits], np.int64)
            refusals = () if found.fits else counted_reasons(found.refusals)
            now = (len(found.fits), digest(node_keys(numbers), found.scores), best, refusals)
            is_same = now == (record.fits, record.digest, record.best, record.refusals)
        if is_same:
            return None
        logged = Outcome() if record.best < 0 else Outcome(self.node(record.best), (), record.score)
        outcome = Outcome() if best < 0 else Outcome(self._names[best], (), score)
        return self._difference(record.pod, logged, outcome, self._why_node(record, found, best, score))

    def _why_node(self, record: NodesJudged, found: Evaluation, best: int, score: float) -> str:
        if best < 0:
            if record.best < 0:
                return "no node has room for the pod, as in the log, but the reasons differ"
            return "no node has room for the pod"
        if best == record.best:
            return (
                f"the pod fits on {counted(len(found.fits), 'node')}, but on {record.fits} in the log"
                if len(found.fits) != record.fits
                else f"{self._words} scores the node {score!r}, but {record.score!r} in the log"
                if score != record.score
                else f"{self._words} scores other nodes differently, or a different set of nodes fits"
            )
        name = self._names[best]
        if record.best < 0:
            return f"node {name} has room for the pod"
        logged = self._names[record.best]
        if logged not in found.fits:
            return f"the pod does not fit on the logged node, but node {name} has room"
        there = float(found.scores[found.fits.index(logged)])
        return describe_scores(self._words, name, score, there)

    def _place(self, record: PodPlaced) -> DecisionDifference | None:
        (request, left, held, _), name = self.asked(record), self.node(record.node)
        self._set_clock(record.clock)
        found = self._evaluator.place(name, request, left, held.get(name, NO_NOMINATED_USAGE))
        self.decisions += 1
        now = found.containers if isinstance(found, Placement) else ()
        refusal = tuple((str(r), n) for r, n in found.counts) if isinstance(found, Refusal) else ()
        pools = found.pools if isinstance(found, Placement) else ()
        is_same = (now, pools) == (record.containers, record.pools) and (self._is_other or refusal == record.refusal)
        if is_same:
            return None
        logged, outcome = self._gpus(name, record.containers), self._gpus(name, now)
        if isinstance(found, Refusal):
            same = "" if record.containers else ", as in the log, but for other reasons"
            why = f"the pod does not fit on node {name}{same}: {found.message_to_operators}"
        else:
            pros = self._evaluator.why(request, found)
            others = (
                "other shares of the same GPUs, or other network devices"
                if logged.gpus == outcome.gpus
                else "other GPUs"
            )
            why = f"{self._words} chooses {others}{f': {pros}' if pros else ''}"
            if not record.containers:
                why = f"node {name} has room for the pod"
        return self._difference(record.pod, logged, outcome, why)

    def _gpus(self, name: str, containers: tuple[ContainerGrant, ...]) -> Outcome:
        """By their places among the node's."""
        if not containers:
            return Outcome()
        state = self.fleet.node(name)
        uuids = [] if state is None else [each.device.uuid for each in state.devices]
        places = (uuids.index(uuid) if uuid in uuids else -1 for part in containers for uuid in part.uuids)
        return Outcome(name, tuple(places))

    def _difference(self, pod: PodKey, logged: Outcome, now: Outcome, why: str) -> DecisionDifference:
        return DecisionDifference(self.decisions, f"{pod.namespace}/{pod.name}", logged, now, why)

    def _best(self, found: Evaluation) -> tuple[int, float]:
        if not found.fits:
            return -1, 0.0
        score, order = found.scores.max(), self._evaluator.arrays.order
        places = (found.scores == score).nonzero()[0]
        first = places[order[found.rows[places]].argmin()]
        return self._numbers[found.fits[first]], float(score)

    def _set_clock(self, clock: int) -> None:
        """The arrays were changed more often than the log says: what policies that choose at random draw depends on
        how often."""
        self._evaluator.refresh()
        arrays = self._evaluator.arrays
        arrays.clock = max(arrays.clock, clock)

    def _request(self, pod: PodKey, number: int) -> PodRequest:
        request = item_at(self._requests, number, "request")
        kubelet = request.kubelet_pod and replace(request.kubelet_pod, uid=pod.uid)
        return replace(request, uid=pod.uid, namespace=pod.namespace, name=pod.name, kubelet_pod=kubelet)

    def _held(self, held: tuple[HeldForOthers, ...]) -> dict[str, NominatedUsage]:
        return {
            self.node(each.node): NominatedUsage(
                each.usage, {(pool, place): count for pool, place, count in each.pools}
            )
            for each in held
        }

    def _candidates_of(self, nodes: bytes) -> list[str]:
        numbers = np.unpackbits(np.frombuffer(nodes, np.uint8)).nonzero()[0].tolist()
        return [self.node(number) for number in numbers]

    def node(self, number: int) -> str:
        """The name of a node. Raises as `apply`."""
        return item_at(self._names, number, "node")


def _policy_fields(policy: str) -> dict[str, object]:
    node, gpu = named_policy(policy)
    return {"node": node, "gpu": (gpu,)}


def _cpus(lists: CpuLists | None) -> CpuState | None:
    if lists is None:
        return None
    exclusive = {(uid, name): parse_cpuset(text) for uid, name, text in lists.exclusive}
    return CpuState(parse_cpuset(lists.default), parse_cpuset(lists.reserved), exclusive)


def _check_inventory(inventory: NodeInventory) -> None:
    """What else would take memory or time without end: adapters refuse it of nodes likewise."""
    for problem in exceeded_limits(inventory):
        raise ValueError(f"an inventory {problem}")
    for device in inventory.devices:
        if device.replicas > max(device.slots, 1):
            raise ValueError(f"device {device.uuid[:64]} has more replicas than slots")
