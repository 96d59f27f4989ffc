"""Attributes kubelet's calls: kubelet asks for devices without naming the pod, which is determined here. Pure.

kubelet admits pods one at a time, and while it waits for GetPreferredAllocation or Allocate its PodResources list
already has the pod under admission, with the containers still without devices, and not yet the pods behind it. So the
pods that hold a grant on this node and lack devices in the list are the candidates, nearly always exactly one:

- Each candidate waits with one container: the first, in kubelet's order, that has no devices. kubelet's list shows that
  for the containers in it. Plain init containers are never in it: they are served when the agent's ledger has them, or
  when a later container has devices.
- A candidate fits when its container was granted what the call can be about: as many devices as kubelet wants, and
  exactly on the devices that the ids are on (Allocate), or on devices with available ids and on all those that must be
  included (GetPreferredAllocation).
- Candidates that fit are exchangeable when the same answer is right for all of them: for GetPreferredAllocation the
  same devices; for Allocate the same shares too, in containers that kubelet lists (only the agent's ledger knows which
  unlisted container was served, so it must be right about that). Then the first by uid is taken. Otherwise the call is
  ambiguous, and refused: kubelet's list still holds a pod that it rejected, whose update by the API server is about to
  arrive.
- Two pods of one name may be listed: one that was deleted by force, and that kubelet is still ending, beside the one
  that was created since. The former is not a candidate, as far as it can be told apart: it lacks a container that the
  grant has, or holds devices where the grant's pod was given none.
- When no waiting container fits, init containers that were served before are tried once more: a kubelet that restarted
  between Allocate and its own checkpoint asks for them again.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall
from purser.agent.kubelet.pod_resources import ListedPod
from purser.core.model import ContainerGrant, ContainerKind, Grant


class ContainerTurn(msgspec.Struct, frozen=True):
    """A container whose turn it may be."""

    grant: Grant
    part: ContainerGrant
    listed: bool = True
    """Whether kubelet's list has the container; plain init containers are not in it."""

    @property
    def key(self) -> str:
        """The pod, as informers key it."""
        return self.grant.key

    def __str__(self) -> str:
        return f"{self.key} container {self.part.container} ({', '.join(self.part.uuids)})"


class Resolution(msgspec.Struct, frozen=True):
    """The container that a call is for, or why that is not known."""

    turn: ContainerTurn | None
    waiting: tuple[ContainerTurn, ...] = ()
    """Every container that waits, whether it fits or not."""
    fitting: tuple[ContainerTurn, ...] = ()
    """Those that fit; more than one together with ``turn`` None is an ambiguity."""


def resolve(
    ask: PreferredAllocationCall | AllocateCall,
    listing: Iterable[ListedPod],
    grants: Mapping[str, Grant],
    served: Mapping[str, frozenset[str]],
) -> Resolution:
    """Whose call of kubelet this is.

    ``grants`` are the verified grants of live pods on this node by pod key; ``served`` are the containers, by pod uid,
    that the agent's book says were allocated.
    """
    no_ids: frozenset[str] = frozenset()
    pods = _granted_pods(listing, grants, served)
    waiting = _turns(pods, lambda grant, pod: next_part(grant, pod.containers, served.get(grant.pod_uid, no_ids)))
    fitting = tuple(turn for turn in waiting if ask.fits(turn.part))
    if not fitting:
        repeated = _turns(pods, lambda grant, pod: _repeated_init_container(grant, pod, ask))
        fitting = tuple(turn for turn in repeated if ask.fits(turn.part))
    exchangeable = len({_interchange_key(ask, turn) for turn in fitting}) == 1
    return Resolution(fitting[0] if exchangeable else None, waiting, fitting)


def _interchange_key(ask: PreferredAllocationCall | AllocateCall, turn: ContainerTurn) -> object:
    """Equal for turns that the same answer is right for, now and in what it means for the next call."""
    if isinstance(ask, PreferredAllocationCall):
        return frozenset(turn.part.uuids)
    return frozenset(turn.part.shares), turn.part.enforcement, "" if turn.listed else turn.grant.pod_uid


def _granted_pods(
    listing: Iterable[ListedPod], grants: Mapping[str, Grant], served: Mapping[str, frozenset[str]]
) -> list[tuple[Grant, ListedPod]]:
    """The listed pods that are those of the grants, without others of their names."""
    by_key: dict[str, list[ListedPod]] = {}
    for pod in listing:
        if pod.key in grants and _has_all_containers(pod, grants[pod.key]):
            by_key.setdefault(pod.key, []).append(pod)
    found = []
    for key, pods in by_key.items():
        given = served.get(grants[key].pod_uid, frozenset())
        own = [pod for pod in pods if given.issuperset(name for name, ids in pod.containers.items() if ids)]
        found += [(grants[key], pod) for pod in (own if len(pods) > 1 and own else pods)]
    return found


def _has_all_containers(pod: ListedPod, grant: Grant) -> bool:
    """Whether kubelet lists all containers of the grant that it lists of any pod: of init containers it lists sidecars
    at the most."""
    return all(part.container in pod.containers for part in grant.containers if part.kind is ContainerKind.APP)


def _turns(
    pods: Iterable[tuple[Grant, ListedPod]], choose: Callable[[Grant, ListedPod], ContainerGrant | None]
) -> tuple[ContainerTurn, ...]:
    turns = [
        ContainerTurn(grant, part, part.container in pod.containers)
        for grant, pod in pods
        if (part := choose(grant, pod))
    ]
    return tuple(sorted(turns, key=lambda turn: turn.grant.pod_uid))


def next_part(grant: Grant, listed: Mapping[str, tuple[str, ...]], served: frozenset[str]) -> ContainerGrant | None:
    """The container of a pod that kubelet will ask for next; None when all have devices."""
    for place, part in enumerate(grant.containers):
        later_has_devices = any(listed.get(later.container) for later in grant.containers[place + 1 :])
        if part.container in listed:
            if not listed[part.container]:
                return part
        elif part.container not in served and not later_has_devices:
            return part
    return None


def _repeated_init_container(
    grant: Grant, pod: ListedPod, ask: PreferredAllocationCall | AllocateCall
) -> ContainerGrant | None:
    """An unlisted init container of a pod that has nothing yet: served before, as far as the agent knows."""
    if any(pod.containers.values()):
        return None
    init = (
        part for part in grant.containers if part.kind is ContainerKind.INIT and part.container not in pod.containers
    )
    return next((part for part in init if ask.fits(part)), None)


def held_ids(listing: Iterable[ListedPod]) -> frozenset[str]:
    """All ids that kubelet lists."""
    return frozenset(id_ for pod in listing for ids in pod.containers.values() for id_ in ids)


def owner_of(ids: Iterable[str], listing: Iterable[ListedPod]) -> tuple[ListedPod, str] | None:
    """The pod and container that hold exactly these ids in kubelet's books."""
    wanted = sorted(ids)
    holders = ((pod, name) for pod in listing for name, held in pod.containers.items() if sorted(held) == wanted)
    return next(holders, None)


def ungranted_holder(uuids: Iterable[str], ungranted_pods: Mapping[str, frozenset[str]]) -> tuple[str, str] | None:
    """The key of a live pod without a grant of Purser's that holds one of these devices, and that device.

    ``ungranted_pods`` are such pods with the devices they hold: they got them from another plugin before this one took
    over; what they use is in no ledger.
    """
    wanted = frozenset(uuids)
    return next(((key, min(held & wanted)) for key, held in sorted(ungranted_pods.items()) if held & wanted), None)
