"""What every controller does around its `reconcile`: queue the keys of what changed, and work them off."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from purser.kube.client import Client
from purser.kube.errors import NotFoundError
from purser.kube.informer import Informer
from purser.kube.resources import Raw, Resource, key_of
from purser.kube.workqueue import WorkQueue, run_workers

Reconcile = Callable[[Raw], Awaitable[None]]


async def run_controller(
    primary: Informer[Raw],
    reconcile: Reconcile,
    *secondary: tuple[Informer[Raw], Callable[[Raw], Iterable[str]]],
) -> None:
    """Reconcile every object of ``primary`` whenever it, or an object that names it, changed. Until cancelled."""
    queue: WorkQueue[str] = WorkQueue(initial_s=0.1, cap_s=10.0)

    def enqueue(obj: Raw) -> None:
        queue.add(key_of(obj))

    primary.add_handler(on_add=enqueue, on_update=lambda _old, new: enqueue(new))
    for informer, keys_for in secondary:
        _follow(informer, keys_for, queue)

    async def work(key: str) -> None:
        obj = primary.store.get(key)
        if obj is not None and not obj["metadata"].get("deletionTimestamp"):
            await reconcile(obj)

    await run_workers(queue, work)


def _follow(informer: Informer[Raw], keys_for: Callable[[Raw], Iterable[str]], queue: WorkQueue[str]) -> None:
    def enqueue(obj: Raw) -> None:
        for key in keys_for(obj):
            queue.add(key)

    informer.add_handler(on_add=enqueue, on_update=lambda _old, new: enqueue(new), on_delete=enqueue)


async def write_status(client: Client, resource: Resource[Raw], obj: Raw, status: dict[str, Any]) -> None:
    """Write the status when it differs from what the object says."""
    metadata = obj["metadata"]
    status = {"observedGeneration": metadata.get("generation", 1), **status}
    known = obj.get("status") or {}
    if all(known.get(key) == value for key, value in status.items()):
        return
    try:
        await client.patch_merge(
            resource, metadata["name"], {"status": status}, metadata["namespace"], subresource="status"
        )
    except NotFoundError:
        return
