"""What kubelet's list says of pods that the API server has as ended or gone: they hold what kubelet lists. Pure.

The API server's word does not prove that a pod ended. Objects may vanish while containers run (etcd was restored from
a backup, a pod was deleted by force), and a status has more writers than kubelet. kubelet releases the devices of pods
that have ended before it answers a list.
"""

from collections.abc import Iterable, Mapping

from purser.agent.admission import ListedPod
from purser.agent.book import BookedPod


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
