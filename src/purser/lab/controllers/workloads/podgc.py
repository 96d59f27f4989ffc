"""The pod garbage collector: pods of nodes that are gone go too, for no kubelet is left to end them."""

from purser.kube.client import Client
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.resources import PODS, Raw, key_of
from purser.kube.workqueue import WorkQueue, run_workers


async def run(client: Client, nodes: Informer[Raw], pods: Informer[Raw]) -> None:
    """Until cancelled."""
    queue: WorkQueue[str] = WorkQueue()
    lost: set[str] = set()
    """Deleted nodes: the watch of a pod that was bound to one before may report it later."""

    def lose(node: Raw) -> None:
        lost.add(key_of(node))
        queue.add(key_of(node))

    def look(pod: Raw) -> None:
        if (node := pod["spec"].get("nodeName")) in lost:
            queue.add(node)

    nodes.add_handler(on_add=lambda node: lost.discard(key_of(node)), on_delete=lose)
    pods.add_handler(on_add=look, on_update=lambda _, new: look(new))

    async def collect(node: str) -> None:
        if node in nodes.store:
            return
        for pod in list(pods.store.values()):
            if pod["spec"].get("nodeName") == node:
                await _delete(client, pod)

    await run_workers(queue, collect)


async def _delete(client: Client, pod: Raw) -> None:
    metadata = pod["metadata"]
    try:
        await client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_period_seconds=0)
    except (NotFoundError, ConflictError):
        return
