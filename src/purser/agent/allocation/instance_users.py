"""Who has instances on a node, by the agent's book, the pods' grants and kubelet."""

from purser.agent.allocation.book import Book
from purser.agent.allocation.pods import NodePods
from purser.agent.instances.keeping import Placements, placements_of
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.core.device.ids import uuid_of


class NodeInstanceUsers:
    """See `InstanceUsers`."""

    def __init__(self, pods: NodePods, book: Book, kubelet: KubeletBooks) -> None:
        self._pods = pods
        self._book = book
        self._kubelet = kubelet

    def granted(self, besides: tuple[str, str] | None = None) -> Placements:
        """See `InstanceUsers.granted`."""
        return placements_of(
            part
            for uid, booked in self._book.pods.items()
            for part in booked.grant.containers
            if part.container in booked.containers and (uid, part.container) != besides
        )

    def kept(self) -> Placements | None:
        """See `InstanceUsers.kept`."""
        if not (self._pods.pods.health.synced and self._pods.key_maps.health.synced):
            return None
        return placements_of(part for grant in self._pods.view().grants.values() for part in grant.containers)

    async def is_held_without_grant(self, gpu: str) -> bool:
        """See `InstanceUsers.is_held_without_grant`."""
        try:
            listing = await self._kubelet.list()
        except KubeletError:
            return True  # not known
        known = {*self._pods.view().grants, *(booked.grant.key for booked in self._book.pods.values())}
        held = ((pod.key, device) for pod in listing for ids in pod.containers.values() for device in ids)
        return any(uuid_of(device) == gpu and key not in known for key, device in held)
