"""kubelet's own books over its PodResources API: which container holds which ids of GPUs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import grpc
import grpc.aio
import msgspec

from purser.agent.kubeletapi.channels import UNIX_SOCKET_OPTIONS
from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.core.device.resources import is_gpu_resource

AllocatableDevices = dict[str, dict[str, tuple[int, ...] | None]]
"""By resource and device id the NUMA nodes; None: without topology."""

LIST_TIMEOUT_S = 30.0
"""kubelet answers in milliseconds, also while it waits for the plugin; it may just be restarting. On a node without CPU
to spare it took more than five seconds: a pod whose call fails is refused for good, and kubelet itself would wait."""

MAX_GRPC_MESSAGE_BYTES = 16 * 1024 * 1024
"""Bytes: what kubelet's own clients of PodResources take (defaultPodResourcesMaxSize), and more than the limit of any
plugin."""

_RETRY_RATE_LIMITED = {
    "methodConfig": [
        {
            "name": [{"service": "v1.PodResourcesLister"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}
"""kubelet answers all clients of PodResources 100 times a second and 10 times at once, and rejects what goes beyond
(pkg/kubelet/apis/podresources/constants.go). A pod must not fail because somebody else asks too often."""

CHANNEL_OPTIONS = (
    *UNIX_SOCKET_OPTIONS,
    # kubelet comes back within seconds; gRPC's own pause between two dials grows to two minutes.
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE_BYTES),
    ("grpc.service_config", json.dumps(_RETRY_RATE_LIMITED)),
)
"""For every channel to kubelet or to a plugin."""


class KubeletError(Exception):
    """kubelet did not answer; the message says what was asked and how it failed."""


class ListedPod(msgspec.Struct, frozen=True):
    """One pod of kubelet's PodResources list: its containers in kubelet's order with their ids of GPUs."""

    namespace: str
    name: str
    containers: Mapping[str, tuple[str, ...]]
    resources: Mapping[str, str] = {}
    """By container, the resource of its ids."""

    @property
    def key(self) -> str:
        """As informers key pods."""
        return f"{self.namespace}/{self.name}"

    @property
    def lacks_devices(self) -> bool:
        """Whether any container is without devices: all that the pod under admission has in common with many others."""
        return not all(self.containers.values())


class KubeletBooks:
    """A client of PodResources. Use as an async context manager."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def __aenter__(self) -> "KubeletBooks":
        self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=CHANNEL_OPTIONS)
        self._stub = api_pb2_grpc.PodResourcesListerStub(self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def list(self) -> tuple[ListedPod, ...]:
        """Every pod that kubelet lists. Raises `KubeletError`."""
        return tuple(listed_pod(pod) for pod in await self.resources())

    async def resources(self) -> Sequence[api_pb2.PodResources]:
        """The same with everything in kubelet's list, including other plugins' resources. Raises `KubeletError`."""
        try:
            response = await self._stub.List(
                api_pb2.ListPodResourcesRequest(), timeout=LIST_TIMEOUT_S, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            raise self._failed("List", error) from error
        return response.pod_resources

    async def allocatable(self) -> AllocatableDevices:
        """Every device of every plugin. Raises `KubeletError`, also where kubelet has no such call (before 1.21)."""
        try:
            response = await self._stub.GetAllocatableResources(
                api_pb2.AllocatableResourcesRequest(), timeout=LIST_TIMEOUT_S, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            raise self._failed("GetAllocatableResources", error) from error
        return allocatable_devices(response)

    def _failed(self, method: str, error: grpc.aio.AioRpcError) -> KubeletError:
        return KubeletError(f"PodResources {method} at {self._socket}: {error.code().name}: {error.details()}")


def allocatable_devices(response: api_pb2.AllocatableResourcesResponse) -> AllocatableDevices:
    """The devices of a response; kubelet lists one that is on several NUMA nodes once or once for each."""
    found: AllocatableDevices = {}
    for devices in response.devices:
        of_resource = found.setdefault(devices.resource_name, {})
        nodes = {node.ID for node in devices.topology.nodes}
        for device_id in devices.device_ids:
            known = of_resource.get(device_id) or ()
            of_resource[device_id] = tuple(sorted(nodes.union(known))) or None
    return found


def listed_pod(pod: api_pb2.PodResources) -> ListedPod:
    """A listed pod with the ids of GPUs only; kubelet may list a resource once per NUMA node."""
    held = {container.name: list(_gpu_ids(container)) for container in pod.containers}
    return ListedPod(
        namespace=pod.namespace,
        name=pod.name,
        containers={name: tuple(id_ for id_, _ in ids) for name, ids in held.items()},
        resources={name: ids[0][1] for name, ids in held.items() if ids},
    )


def _gpu_ids(container: api_pb2.ContainerResources) -> Iterator[tuple[str, str]]:
    """Ids with their resources, of any plugin: a GPU can be held under several resource names."""
    for devices in container.devices:
        if is_gpu_resource(devices.resource_name):
            yield from ((device_id, devices.resource_name) for device_id in devices.device_ids)
