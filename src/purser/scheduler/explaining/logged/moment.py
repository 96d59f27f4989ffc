"""The scheduler's state at one decision of its log, and what the decision would have been in another one.

The fleet is the log's own, so that what is found is what the scheduler would have found. Each change is undone.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from purser.core.decisions.notes import DecisionInputs
from purser.core.decisions.scheduling import SchedulingReplay
from purser.core.fleet import NO_NOMINATED_USAGE, Fleet, NodeState
from purser.core.fleet.kubelet_snapshot import kubelet_report
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, grant_demand, remaining_quota
from purser.core.kubelet.config import TopologyPolicy
from purser.core.kubelet.report import aligns
from purser.core.model import GpuPolicy, Grant, GrantState, NodeInventory, PodRequest
from purser.core.placement import Evaluation, Placement, Reason, place, to_grant


class LoggedMoment:
    """One decision: who asked, about which nodes, and in which state."""

    def __init__(self, replay: SchedulingReplay, asked: DecisionInputs, names: list[str]) -> None:
        """``replay``: at the record of the decision; it is followed no further. ``names``: the nodes that were asked
        about."""
        self._replay, self._names = replay, names
        self.asked = asked
        self.found = self.evaluate()
        """The decision."""
        self.reasons = {reason for each in self.found.refusals.values() for reason, _ in each.counts}
        """Purser's, on all nodes together."""

    @property
    def request(self) -> PodRequest:
        """What the pod asks for."""
        return self.asked.request

    @property
    def names(self) -> Sequence[str]:
        """The nodes that were asked about."""
        return self._names

    @property
    def fleet(self) -> Fleet:
        """As the log has it."""
        return self._replay.fleet

    @property
    def not_asked(self) -> list[str]:
        """The nodes with GPUs that Purser was not asked about."""
        asked = set(self._names)
        return [name for name in self.fleet.names() if name not in asked]

    def evaluate(self, request: PodRequest | None = None, names: list[str] | None = None) -> Evaluation:
        """The verdict on nodes, as they are now, for another request."""
        asked = self.asked if request is None else self.asked._replace(request=request)
        return self._replay.evaluate(asked, self._names if names is None else names)

    def refused_for(self, reason: Reason) -> list[str]:
        """The nodes that were refused for a reason, among others."""
        return [name for name, each in self.found.refusals.items() if any(r is reason for r, _ in each.counts)]

    def state(self, node: str) -> NodeState | None:
        """A node's GPUs."""
        return self.fleet.node(node)

    def why_gpus(self, placement: Placement) -> str:
        """What the policy says for a placement, in a sentence; empty: nothing."""
        return self._replay.evaluator.why(self.request, placement)

    def policy(self) -> str:
        """For nodes."""
        return self._replay.evaluator.policy.node_policy(self.request)

    def idle_only(self) -> bool:
        """Whether the pod's policy takes only unused GPUs."""
        return GpuPolicy.MUTEX in self._replay.evaluator.policy.gpu_policy(self.request)

    def demand_on(self, node: str) -> Demand | None:
        """What the pod would use of its namespace's quota on a node; None where it does not fit."""
        state = self.state(node)
        if state is None:
            return None
        held = self.asked.held.get(node, NO_NOMINATED_USAGE)
        placed = self._replay.evaluator.place(node, self.request, self.asked.left, held)
        return grant_demand(to_grant(placed, self.request, state.inventory)) if isinstance(placed, Placement) else None

    def fits_without(self, node: str, gone: Collection[str]) -> bool:
        """Whether a node would take the pod if these pods, by uid, were gone: quick, for a search."""
        state = self.fleet.without(node, {*gone, self.request.uid})
        if state is None:
            return False
        policy, left = self._replay.evaluator.policy, self.quota_left_without(gone)
        return isinstance(
            place(state.plus(self.asked.held.get(node, NO_NOMINATED_USAGE)), self.request, policy, left), Placement
        )

    def quota_left_without(self, gone: Iterable[str]) -> QuotaLimits:
        """What the quota of the pod's namespace leaves then."""
        left = self.asked.left
        for grant in map(self.fleet.ledger.grant, gone if left != UNLIMITED else ()):
            if grant is not None and self.is_of_quota(grant):
                left = remaining_quota(left, Demand() - grant_demand(grant))
        return left

    def is_of_quota(self, grant: Grant) -> bool:
        """Whether a pod uses of the quota that this one needs."""
        own = self.request
        same = (grant.namespace, grant.family) == (own.namespace, own.family)
        return same and self.asked.left != UNLIMITED and grant.pod_uid != own.uid

    @contextmanager
    def with_quota_left(self, left: QuotaLimits) -> Iterator[None]:
        """As if the quota left so much."""
        before, self.asked = self.asked, self.asked._replace(left=left)
        try:
            yield
        finally:
            self.asked = before

    @contextmanager
    def without(self, uids: Collection[str]) -> Iterator[None]:
        """As if these pods had ended."""
        ledger, left = self.fleet.ledger, self.quota_left_without(uids)
        gone = [(grant, ledger.state(uid) or GrantState.BOUND) for uid in uids if (grant := ledger.grant(uid))]
        pods = {name: self.fleet.kubelet_pods(name) for grant, _ in gone for name in [grant.node]}
        for grant, _ in gone:
            ledger.release(grant.pod_uid)
            self.fleet.forget_pod(grant.pod_uid)
        try:
            with self.with_quota_left(left):
                yield
        finally:
            for grant, state in gone:
                ledger.adopt(grant, state)
            for name, before in pods.items():
                self.fleet.restore_kubelet(name, self.fleet.kubelet_report(name), before)

    @contextmanager
    def with_inventories(self, inventories: Iterable[NodeInventory]) -> Iterator[None]:
        """As if nodes had these GPUs."""
        changed = list(inventories)
        before = [state.inventory for each in changed if (state := self.state(each.node)) is not None]
        for each in changed:
            self.fleet.set_inventory(each)
        try:
            yield
        finally:
            for each in before:
                self.fleet.set_inventory(each)

    @contextmanager
    def with_unaligned_kubelets(self, names: Iterable[str]) -> Iterator[None]:
        """As if the kubelets of these nodes had no topology manager policy."""
        before = {name: report for name in names if (report := self.fleet.kubelet_report(name)) is not None}
        for name, report in before.items():
            node = replace(report.node, config=replace(report.node.config, topology_policy=TopologyPolicy.NONE))
            unaligned = kubelet_report(node, report.state, report.counted) if aligns(node.config) else None
            self.fleet.restore_kubelet(name, unaligned, self.fleet.kubelet_pods(name))
        try:
            yield
        finally:
            for name, report in before.items():
                self.fleet.restore_kubelet(name, report, self.fleet.kubelet_pods(name))
