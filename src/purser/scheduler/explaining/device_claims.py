"""The ResourceClaims that pods name, by the rules of kube-scheduler's plugin DynamicResources (1.37).

Whether a claim that is not allocated yet can have devices on a node is not decided here: DeviceClasses and claims
select them by expressions in CEL. The last message of kube-scheduler says so.
"""

from collections.abc import Iterator, Sequence

from purser.adapters.objects import ClusterObjects
from purser.core.decoding import brief, check_nesting, convert_value, without_nulls
from purser.core.kubernetes.affinity import NodeTerms
from purser.kube.device_claims import ResourceClaim
from purser.kube.objects import Pod
from purser.kube.pod_details import PodResourceClaim, ScheduledPod
from purser.kube.resources import key_of


class DeviceClaims:
    """ResourceClaims, and the DeviceClasses that there are."""

    def __init__(self, objects: ClusterObjects) -> None:
        known = objects.resource_claims
        self._claims = None if known is None else {key_of(each): each for each in known}
        classes = objects.device_classes
        self._classes = None if classes is None else frozenset(each.metadata.name for each in classes)

    def objection(self, pod: Pod) -> str:
        """What keeps a pod from all nodes, in a sentence without its end; empty: nothing."""
        named = () if self._claims is None else _named_claims(pod)
        return next(filter(None, (self._objection_to(pod, each) for each in named)), "")

    def availability(self, pod: Pod) -> Iterator[tuple[str, NodeTerms]]:
        """The allocated claims whose devices not every node can use. Raises
        `purser.core.decoding.UnreadableError`."""
        for claim in self._found(pod):
            allocation = claim.status.allocation
            if allocation is not None and allocation.node_selector is not None:
                check_nesting(allocation.node_selector, "nodeSelector")
                terms = convert_value(without_nulls(allocation.node_selector), NodeTerms, "nodeSelector")
                yield claim.metadata.name, terms

    def note(self, pod: Pod) -> str:
        """What of a pod's claims is not known here; empty: nothing."""
        if not _named_claims(pod):
            return ""
        if self._claims is None:
            return "The pod has resource claims (DRA). ResourceClaims were not read, so Purser does not check them"
        if not pod.metadata.creation_timestamp:
            return "Purser does not check whether the pod's resource claims (DRA) can be allocated"
        open_claims = [each.metadata.name for each in self._found(pod) if each.status.allocation is None]
        if not open_claims:
            return ""
        names = ", ".join(map(brief, open_claims))
        if len(open_claims) > 1:
            return (
                f"ResourceClaims {names} are not allocated yet. Purser does not check which nodes have devices for them"
            )
        return f"ResourceClaim {names} is not allocated yet. Purser does not check which nodes have devices for it"

    def _found(self, pod: Pod) -> Iterator[ResourceClaim]:
        for each in _named_claims(pod):
            claim = (self._claims or {}).get(f"{pod.metadata.namespace}/{_claim_name(pod, each)}")
            if claim is not None:
                yield claim

    def _objection_to(self, pod: Pod, named: PodResourceClaim) -> str:
        name = _claim_name(pod, named)
        if name is None and not pod.metadata.creation_timestamp:
            return ""  # a pod that does not exist yet: its claims are created after it
        if name is None:
            return (
                f"the ResourceClaim for its claim {brief(named.name)} has not been created from ResourceClaimTemplate "
                f"{brief(named.resource_claim_template_name)} yet"
            )
        if not name:
            return ""
        claim = (self._claims or {}).get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            return f"ResourceClaim {brief(name)} does not exist"
        if claim.metadata.deletion_timestamp:
            return f"ResourceClaim {brief(name)} is being deleted"
        if not named.resource_claim_name and not _is_owned(claim, pod):
            return f"ResourceClaim {brief(name)} was created for another pod"
        missing = self._missing_class(claim)
        return f"DeviceClass {brief(missing)} of ResourceClaim {brief(name)} does not exist" if missing else ""

    def _missing_class(self, claim: ResourceClaim) -> str:
        if self._classes is None or claim.status.allocation is not None:
            return ""
        for request in claim.spec.devices.requests:
            ways = request.first_available if request.exactly is None else (request.exactly,)
            for each in ways:
                if each.device_class_name not in self._classes:
                    return each.device_class_name
        return ""


def _named_claims(pod: Pod) -> Sequence[PodResourceClaim]:
    return pod.spec.resource_claims if isinstance(pod, ScheduledPod) else ()


def _claim_name(pod: Pod, named: PodResourceClaim) -> str | None:
    """None: not created yet; empty: on purpose there is none."""
    if named.resource_claim_name:
        return named.resource_claim_name
    statuses = pod.status.resource_claim_statuses if isinstance(pod, ScheduledPod) else ()
    return next((each.resource_claim_name for each in statuses if each.name == named.name), None)


def _is_owned(claim: ResourceClaim, pod: Pod) -> bool:
    """By the pod, or its PodGroup: whose it is the pod does not say by UID, so that is not told apart."""
    controllers = [each for each in claim.metadata.owner_references if each.controller]
    return any(each.uid == pod.metadata.uid or each.kind == "PodGroup" for each in controllers)
