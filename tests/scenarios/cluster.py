"""What a scenario may use: the Kubernetes API, and the few things that only whoever runs the cluster can do.

Implemented by tests/lab (the embedded lab) and tests/cluster (a real Kubernetes).
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from purser.kube.client import Client


class Cluster(Protocol):
    """A Kubernetes with Purser on it and one node `gpu_node` with eight simulated A100 of 40 GiB, ten slots each.

    Other nodes may exist; a scenario pins its GPU pods to `gpu_node` by a node selector on kubernetes.io/hostname.
    """

    client: Client
    """An ordinary administrator's client; closed by whoever made the cluster."""
    namespace: str
    """Fresh and empty for every test; whoever made the cluster deletes it after the test."""
    gpu_node: str
    uuids: tuple[str, ...]
    """The cards of `gpu_node` by index."""
    image: str
    """An image that is present on the nodes and has a shell with `env` and `sleep`; pull policy is IfNotPresent."""
    pod_fields: Mapping[str, Any]
    """Of the specification of every pod: what makes its start cheaper, and has nothing to do with GPUs."""

    async def container_env(self, pod: str, container: str) -> dict[str, str]:
        """The environment that the container's process was started with."""
        ...

    async def pod_resources(self, node: str) -> dict[tuple[str, str, str], tuple[str, ...]]:
        """kubelet's own PodResources List: (namespace, pod, container) -> sorted nvidia.com/gpu device ids."""
        ...

    async def lose_gpu(self, node: str, index: int) -> None:
        """The card falls off the bus."""
        ...

    async def recover_gpu(self, node: str, index: int) -> None:
        """The card is back as if never lost."""
        ...

    async def restart_kubelet(self, node: str) -> None:
        """Stop kubelet and start it again; returns once it is started, not once plugins have registered."""
        ...

    async def kill_agent(self, node: str) -> None:
        """As SIGKILL: no clean-up."""
        ...

    async def start_agent(self, node: str) -> None:
        """Start it again after a kill; returns once it is started, not once it has registered."""
        ...

    async def kill_scheduler(self) -> None:
        """As SIGKILL, of Purser's scheduler process: extender and webhook are gone."""
        ...

    async def start_scheduler(self) -> None:
        """Start it again after a kill; returns once it reports ready."""
        ...

    async def stop_webhook(self) -> None:
        """Nobody answers the API server's webhook calls any more (killing the scheduler process is one way)."""
        ...

    async def start_webhook(self) -> None:
        """Undo `stop_webhook`; returns once the webhook answers."""
        ...

    def hollow_nodes(self, count: int) -> AbstractAsyncContextManager[tuple[str, ...]]:
        """Nodes that exist only in the API: an inventory of one small card each and room for its slots, no kubelet.

        The last of the returned names has a card of 80 GiB, all others have cards of 4 GiB. All carry the label
        purser.dev/hollow=true, and are gone after the context.
        """
        ...
