"""What pods take of their nodes, as kube-scheduler counts it: amounts, host ports, and room that they keep to
themselves. Pods come and go here as the questions want it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from purser.adapters.pods import pod_spec
from purser.core.decoding import UnreadableError
from purser.core.explaining.filters import Amounts, HostPort, requested_amounts, summed_amounts
from purser.core.explaining.neighbours import Neighbour
from purser.core.kubernetes.affinity import NO_AFFINITY, RequiredAffinity, read_affinity
from purser.core.kubernetes.quantities import QuantityError
from purser.kube.objects import Pod
from purser.kube.pod_details import ScheduledPod
from purser.kube.resources import key_of


class PlacedPods:
    """The pods on all nodes."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """``note`` is told what cannot be read."""
        self._note = note
        self._taken: dict[str, dict[str, Amounts]] = {}
        """What each pod takes of its node, by node and uid."""
        self._used: dict[str, Amounts] = {}
        """By node, added up when it is asked for."""
        self._by_uid: dict[str, Pod] = {}
        self._kept_apart: dict[str, RequiredAffinity] = {}
        self.version = 0
        """Another one after every change."""

    @property
    def kept_apart(self) -> Mapping[str, RequiredAffinity]:
        """By uid: pods that keep others away."""
        return self._kept_apart

    @property
    def uids(self) -> Collection[str]:
        """Of all pods on nodes."""
        return self._by_uid.keys()

    def add(self, pod: Pod) -> None:
        """A pod that is on a node."""
        self.put_back(pod, self._amounts(pod))

    def put_back(self, pod: Pod, amounts: Amounts) -> None:
        """One of which it is known what it takes."""
        self._changed(pod)
        self._taken.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = amounts
        self._by_uid[pod.metadata.uid] = pod
        if isinstance(pod.spec.affinity, dict) and pod.spec.affinity.get("podAntiAffinity"):
            with suppress(UnreadableError):  # the API server lets in none of them
                self._kept_apart[pod.metadata.uid] = read_affinity(pod.spec.affinity)

    def remove(self, pod: Pod) -> Amounts:
        """What it took."""
        self._changed(pod)
        self._kept_apart.pop(pod.metadata.uid, None)
        self._by_uid.pop(pod.metadata.uid, None)
        return self._taken.get(pod.spec.node_name, {}).pop(pod.metadata.uid, {})

    def pod(self, uid: str) -> Pod | None:
        """One that is on a node."""
        return self._by_uid.get(uid)

    def pods_on(self, node: str) -> list[Pod]:
        """By name."""
        return sorted((self._by_uid[uid] for uid in self._taken.get(node, ())), key=key_of)

    def used(self, node: str) -> Amounts:
        """What pods take of a node together."""
        if node not in self._used:
            self._used[node] = summed_amounts(self._taken.get(node, {}).values())
        return self._used[node]

    def used_without(self, node: str, gone: Collection[str]) -> Amounts:
        """The same without some of them, by uid."""
        return summed_amounts(amounts for uid, amounts in self._taken.get(node, {}).items() if uid not in gone)

    def taken_by(self, pod: Pod) -> Amounts:
        """What a pod takes of its node."""
        return self._taken.get(pod.spec.node_name, {}).get(pod.metadata.uid, {})

    def ports_on(self, node: str, gone: Collection[str] = ()) -> list[HostPort]:
        """The host ports in use there."""
        return sorted(port for pod in self.pods_on(node) if pod.metadata.uid not in gone for port in host_ports(pod))

    def neighbour(self, pod: Pod) -> Neighbour:
        """What a pod is to another one."""
        meta = pod.metadata
        affinity = self._kept_apart.get(meta.uid, NO_AFFINITY)
        return Neighbour(meta.namespace, meta.labels, pod.spec.node_name, affinity, bool(meta.deletion_timestamp))

    def neighbours(self, uids: Iterable[str]) -> list[Neighbour]:
        """The same of several."""
        return [self.neighbour(pod) for uid in uids if (pod := self._by_uid.get(uid)) is not None]

    def _changed(self, pod: Pod) -> None:
        self.version += 1
        self._used.pop(pod.spec.node_name, None)

    def _amounts(self, pod: Pod) -> Amounts:
        try:
            return requested_amounts(pod_spec(pod))
        except QuantityError as error:
            self._note(f"Pod {key_of(pod)}: its requests cannot be read: {error}")
            return {}


def host_ports(pod: Pod) -> frozenset[HostPort]:
    """The ports of its node that a pod has to itself."""
    if not isinstance(pod, ScheduledPod):
        return frozenset()
    ports = (port for container in pod.spec.containers for port in container.ports)
    return frozenset(HostPort(each.host_port, each.protocol, each.host_ip) for each in ports if each.host_port)
