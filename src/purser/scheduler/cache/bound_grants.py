"""Which grants of bound pods count: those with a valid signature, and what HAMi's scheduler recorded on its nodes.

What counts is in the ledger. What a bound pod holds otherwise only its node's agent knows: its GPUs are disputed.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from purser.adapters.pods import devices_asked, families_asked, grant_state
from purser.core.grant.reconcile import PodBook
from purser.core.grant.signing import GrantError, verify
from purser.core.kubelet.errors import UNEXPECTED_ADMISSION_ERROR
from purser.core.ledger import Ledger
from purser.core.model import Grant, GrantState
from purser.core.names import AWAITS_GRANT, AWAITS_GRANT_ANNOTATION, GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION
from purser.core.vendors.family import DeviceFamily
from purser.kube import key_of
from purser.kube.objects import Pod
from purser.kube.pods import has_started
from purser.kube.reasons import FailureReason
from purser.scheduler.cache.disputes import DisputeBook
from purser.scheduler.cache.hami_records import HamiRecords
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.reasons import BindFailure

log = structlog.get_logger("purser.scheduler")


class PublicKeys(Protocol):
    """The keys by which grants may be signed."""

    @property
    def public(self) -> tuple[Ed25519PublicKey, ...]:
        """All of them."""
        ...


class BoundGrants:
    """Keeps the ledger what bound pods' grants make of it."""

    def __init__(
        self,
        ledger: Ledger,
        hami: HamiRecords,
        disputes: DisputeBook,
        keys: PublicKeys | None,
        metrics: SchedulerMetrics,
        families: Iterable[DeviceFamily],
        report: Callable[[Pod, str, FailureReason], None],
    ) -> None:
        """``keys`` None: grants count as annotations state them. ``families``: of other vendors, whose devices Purser
        serves. ``report``: called with a pod whose annotations do not count, and why not, in a sentence.
        """
        self._ledger = ledger
        self._hami = hami
        self._disputes = disputes
        self._keys = keys
        self._metrics = metrics
        self._family_words = {word: family.resource for family in families for word in family.resources}
        self._report = report
        self._verified: dict[str, tuple[str, str]] = {}
        self._untrusted: dict[str, str] = {}
        self._ungranted: dict[str, str] = {}
        self._admitted: set[str] = set()
        """By uid: pods that kubelet had admitted when they were last heard of."""
        self._of_hami: set[str] = set()
        """By uid: bound pods without a grant that hold GPUs by HAMi's record."""
        self._overdrawn: set[str] = set()
        self.on_overdrawn: Callable[[str], None] = lambda node: None
        """Called for a node with more grants than capacity, and again whenever the phase of a pod there changes."""
        self.on_bound: Callable[[str], None] = lambda uid: None
        """Called once the API server is known to have a Binding for which GPUs were reserved, with the pod's uid."""

    @property
    def untrusted(self) -> Mapping[str, str]:
        """By uid: bound pods whose grant does not count, and why not."""
        return MappingProxyType(self._untrusted)

    @property
    def ungranted(self) -> Mapping[str, str]:
        """By uid: pods that were bound without a grant though they request devices, and their nodes."""
        return MappingProxyType(self._ungranted)

    def put_pod(self, pod: Pod) -> None:
        """Take a bound pod's grant."""
        uid = pod.metadata.uid
        if has_started(pod):
            self._admitted.add(uid)
        was_reserved = self._ledger.state(uid) is GrantState.RESERVED
        self._put_bound(pod)
        if was_reserved and self._ledger.state(uid) not in (GrantState.RESERVED, None):
            self.on_bound(uid)

    def remove_pod(self, uid: str) -> None:
        """The pod has ended or is gone."""
        self._verified.pop(uid, None)
        self._untrusted.pop(uid, None)
        self._ungranted.pop(uid, None)
        self._of_hami.discard(uid)
        self._admitted.discard(uid)

    def confirm(self, grant: Grant) -> None:
        """A Binding of ours was carried out: its grant counts until the pod ends, even where somebody removes the
        annotation before an informer shows it."""
        if self._ledger.state(grant.pod_uid) is GrantState.RESERVED:
            self._ledger.advance(grant.pod_uid, GrantState.BOUND)
            self._verified[grant.pod_uid] = _CARRIED_OUT_TEXTS
            self.on_bound(grant.pod_uid)

    def forget_confirmed(self, pod_uid: str) -> None:
        """No informer will show this pod, nor report its end."""
        self._verified.pop(pod_uid, None)

    def trusted_grant(self, pod: Pod) -> Grant | None:
        """The grant a bound pod carries, None when it carries none. Raises `GrantError` when it must not count."""
        whose = {"pod_uid": pod.metadata.uid, "node": pod.spec.node_name}
        keys = None if self._keys is None else self._keys.public
        return verify(pod.metadata.annotations, **whose, keys=keys)

    def note_rejection(self, pod: Pod) -> None:
        """kubelet gives every failure to allocate devices this reason, of any plugin."""
        grant = self._ledger.grant(pod.metadata.uid)
        if grant is not None and pod.status.reason == UNEXPECTED_ADMISSION_ERROR:
            was_admitted = pod.metadata.uid in self._admitted
            self._disputes.rejected(key_of(pod), grant, pod.status.message, was_admitted=was_admitted)

    def report_violations(self, node: str) -> None:
        """Say where a node's grants take more than it has, once its grants or its devices have changed."""
        self._overdrawn.discard(node)
        for violation in self._ledger.violations(node):
            log.warning(
                "Device overcommitted in the ledger", node=node, device=violation.uuid, problem=violation.problem
            )
            self._overdrawn.add(node)
        if node in self._overdrawn:
            self.on_overdrawn(node)

    def _put_bound(self, pod: Pod) -> None:
        uid, state = pod.metadata.uid, grant_state(pod)
        self._hami.forget(uid)
        held, text = self._ledger.grant(uid), _grant_text(pod)
        if held is not None and (self._verified.get(uid) == text or (uid in self._of_hami and not text[0])):
            self._ledger.adopt(held, state)
            if held.node in self._overdrawn:
                self.on_overdrawn(held.node)
            return
        try:
            grant = self.trusted_grant(pod)
        except GrantError as error:
            self._mark_untrusted(pod, str(error))
            return
        if grant is None and (theirs := self._hami.grant_of(pod)) is not None:
            if self._hami.is_served(theirs.node):
                self._of_hami.add(uid)  # no change of the annotation frees what the pod was given
            self._ungranted.pop(uid, None)
            self._ledger.adopt(theirs, state)
            self._disputes.put_granted(theirs.node, uid)
            self.report_violations(theirs.node)
            return
        if grant is None:
            self._note_ungranted(pod)
            return
        self._of_hami.discard(uid)
        self._untrusted.pop(uid, None)
        self._ungranted.pop(uid, None)
        self._verified[uid] = text
        self._ledger.adopt(grant, state)
        self._disputes.put_granted(grant.node, uid)
        self.report_violations(grant.node)

    def _mark_untrusted(self, pod: Pod, problem: str) -> None:
        """A grant without a valid signature takes nothing from others.

        One that was verified before stays in the ledger: changing the annotation of a running pod frees nothing.
        """
        uid, sentence = pod.metadata.uid, "A change to the grant in the pod's annotations is ignored"
        if uid not in self._verified:
            sentence = "The grant in the pod's annotations is invalid, so it is ignored"
            self._dispute(pod, problem)
        if self._untrusted.get(uid) != problem:
            self._untrusted[uid] = problem
            self._metrics.bind_failed(BindFailure.BOUND_WITH_INVALID_GRANT)
            log.warning(sentence, pod=key_of(pod), node=pod.spec.node_name, error=problem)
            self._report(pod, f"{sentence}: {problem}", FailureReason.UNTRUSTED)

    def _note_ungranted(self, pod: Pod) -> None:
        """Somebody else bound it: a reservation of ours cannot come true any more."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid in self._verified:
            return self._mark_untrusted(pod, "the grant's annotation was removed")
        if pod.metadata.annotations.get(AWAITS_GRANT_ANNOTATION) == AWAITS_GRANT and not has_started(pod):
            return None  # `binding.ServedPods` sees to it
        if self._dispute(pod, "") and uid not in self._ungranted:
            self._ungranted[uid] = node
            self._metrics.bind_failed(BindFailure.BOUND_WITHOUT_GRANT)
            log.warning("A pod that requests devices was bound without a grant", pod=key_of(pod), node=node)
        if message := self._hami.problem_of(uid):
            sentence = (
                f"{message[0].upper()}{message[1:]}. While the pod runs, no new pods are placed on the node's GPUs"
            )
            self._report(pod, sentence, FailureReason.RECORD_NOT_COUNTED)
        return None

    def _dispute(self, pod: Pod, problem: str) -> bool:
        """What the pod holds only its node's agent knows, if anybody does. Returns whether it asks for any devices."""
        meta, asks, families = pod.metadata, bool(devices_asked(pod)), families_asked(pod, self._family_words)
        if asks or families:
            started, whose = has_started(pod), (meta.namespace, meta.name, meta.uid)
            record = self._hami.problem_of(meta.uid)
            book = PodBook(*whose, asks, started, problem=problem, record=record, families=families)
            self._disputes.put_ungranted(pod.spec.node_name, book, grant_state(pod))
        else:
            self._ledger.release(meta.uid)
        return asks or bool(families)


_CARRIED_OUT_TEXTS = ("", "carried out")
"""Stands for a text that no informer has shown yet; no pod has it."""


def _grant_text(pod: Pod) -> tuple[str, str]:
    """What was verified: the same text need not be verified again at each of a pod's many updates."""
    annotations = pod.metadata.annotations
    return annotations.get(GRANT_ANNOTATION, ""), annotations.get(GRANT_SIGNATURE_ANNOTATION, "")
