"""What kubelet's list says of pods that the API server has as ended or gone: they hold what kubelet lists. Pure.

The API server's word does not prove that a pod ended. Objects may vanish while containers run (etcd was restored from
a backup, a pod was deleted by force), and a status has more writers than kubelet. kubelet releases the devices of pods
that have ended before it answers a list.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from purser.agent.allocation.book import BookedPod
from purser.agent.kubelet.pod_resources import ListedPod
from purser.core.device.ids import is_hami_id, uuid_of
from purser.core.dialects.hami import allocated_uuids
from purser.kube.objects import Pod


def pods_still_listed(pods: Mapping[str, BookedPod], listing: Iterable[ListedPod]) -> frozenset[str]:
    """Those of some pods, by uid, of which kubelet lists ids that they were given.

    kubelet names pods without their uids. Of several pods with one name, the one that was given an id last holds it:
    kubelet gave it out again.
    """
    owners = _owners(pods)
    ids = ((pod.key, id_) for pod in listing for held in pod.containers.values() for id_ in held)
    return frozenset(owners[each] for each in ids if each in owners)


def unbooked_ids(pods: Mapping[str, BookedPod], listing: Iterable[ListedPod]) -> dict[str, frozenset[str]]:
    """The ids that kubelet lists and that none of some pods was given, by pod key."""
    owners = _owners(pods)
    found: dict[str, frozenset[str]] = {}
    for pod in listing:
        ids = frozenset(id_ for held in pod.containers.values() for id_ in held if (pod.key, id_) not in owners)
        if ids:
            found[pod.key] = found.get(pod.key, frozenset()) | ids
    return found


def _owners(pods: Mapping[str, BookedPod]) -> dict[tuple[str, str], str]:
    """The pod's uid by its key and the id that it was given. The mapping has pods in the order of their admission."""
    given = (
        ((pod.grant.key, id_), uid) for uid, pod in pods.items() for each in pod.containers.values() for id_ in each.ids
    )
    return dict(given)


def gpus_of_pod(listed: ListedPod, pod: Pod | None) -> frozenset[str]:
    """The GPUs that a pod holds by kubelet's list. HAMi does not heed which ids kubelet chose: what such a pod was
    given stands in its annotation, and both count."""
    ids = [device_id for held in listed.containers.values() for device_id in held]
    uuids = frozenset(map(uuid_of, ids))
    if pod is not None and any(map(is_hami_id, ids)):
        with suppress(ValueError):
            uuids |= allocated_uuids(pod.metadata.annotations)
    return uuids
