"""The pods of this node and the grants they carry, as the API server knows them.

A grant counts only where its signature, pod and node are right and it covers exactly the containers that ask kubelet
for devices. The informer is nearly always ahead of kubelet's admission; where it lags, `NodePods.fetch` asks for single
pods, because kubelet lists pods by name and a pod may have been replaced by another of its name.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from purser.agent.allocation import DISABLE_CONTROL_VARIABLE, ContainerFacts
from purser.core import signing
from purser.core.dialects import DialectError, hami, restored
from purser.core.model import Grant
from purser.core.names import GPU_RESOURCE, GRANT_KEY_CONFIGMAP, GRANT_KEY_CONFIGMAP_FIELD
from purser.core.quantities import quantity_ceil
from purser.kube.adapters import is_terminal, pod_spec
from purser.kube.client import Client
from purser.kube.errors import ApiUnavailableError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.objects import ConfigMap, Container, Pod
from purser.kube.resources import CONFIG_MAPS, PODS, key_of

log = structlog.get_logger("purser.agent")

UNGRANTED = "it asks for devices and carries no grant"
"""The problem that time does not heal: node and grant come in one write."""

FETCH_S = 3.0
"""How long the API server may take over some pods: kubelet admits nothing else meanwhile."""


class PodView(msgspec.Struct, frozen=True):
    """Live pods that have to do with devices, by pod key."""

    grants: Mapping[str, Grant]
    problems: Mapping[str, str]
    """Why a pod that asks for devices, or carries a grant, has none that counts."""
    strangers: frozenset[str] = frozenset()
    """All live pods without a grant that counts."""


def asks(pod: Pod) -> dict[str, int]:
    """How many of kubelet's devices each container of a pod asks for; only those that ask."""
    counts = {container.name: _count(container) for container in (*pod.spec.init_containers, *pod.spec.containers)}
    return {name: count for name, count in counts.items() if count}


def container_facts(pod: Pod, container: str) -> ContainerFacts:
    """What of a container's spec matters for what it is given."""
    found = next((c for c in (*pod.spec.init_containers, *pod.spec.containers) if c.name == container), Container())
    disabled = any(
        variable.name == DISABLE_CONTROL_VARIABLE and variable.value.lower() == "true" for variable in found.env
    )
    return ContainerFacts(priority=_priority(pod, container), control_disabled=disabled)


def _priority(pod: Pod, container: str) -> int | None:
    spec = pod_spec(pod)
    with suppress(DialectError):  # the webhook lets none in; without it the container has what it shows
        spec = restored(spec)
    return next((hami.task_priority(each) for each in spec.containers if each.name == container), None)


def _count(container: Container) -> int:
    try:
        return quantity_ceil(container.resources.limits.get(GPU_RESOURCE, 0))
    except ValueError:  # the API server does not let this in
        return 0


class NodePods:
    """The informers of this node's pods and of the scheduler's keys, and what follows from them."""

    def __init__(self, client: Client, node: str, namespace: str) -> None:
        self._client = client
        self._node = node
        self.pods = Informer(client, PODS, field_selector=f"spec.nodeName={node}")
        self.key_maps: Informer[ConfigMap] = Informer(
            client, CONFIG_MAPS, namespace, field_selector=f"metadata.name={GRANT_KEY_CONFIGMAP}"
        )
        self._keys: tuple[Ed25519PublicKey, ...] = ()
        self._no_keys = f"this agent has none: ConfigMap {namespace}/{GRANT_KEY_CONFIGMAP} is missing or empty"
        self._verified: dict[str, tuple[Mapping[str, str], Grant | str | None]] = {}
        self._fetched: dict[str, Pod | None] = {}
        """By the last `fetch`."""
        self.key_maps.add_handler(
            on_add=self._take_keys,
            on_update=lambda _, new: self._take_keys(new),
            on_delete=lambda old: self._take_keys(ConfigMap(metadata=old.metadata)),
        )
        self.pods.add_handler(on_delete=self._forget)

    def view(self, fetched: Mapping[str, Pod | None] | None = None) -> PodView:
        """The live pods of this node, where ``fetched`` (None: gone) is newer than the informer."""
        pods = {**self.pods.store, **(fetched or {})}
        live = {key: self._grant_of(pod) for key, pod in pods.items() if pod is not None and self._is_live(pod)}
        grants = {key: found for key, found in live.items() if isinstance(found, Grant)}
        problems = {key: found for key, found in live.items() if isinstance(found, str)}
        return PodView(grants, problems, frozenset(live.keys() - grants.keys()))

    def _is_live(self, pod: Pod) -> bool:
        return pod.spec.node_name == self._node and not is_terminal(pod)

    def get(self, key: str) -> Pod | None:
        """A pod of this node as the informer knows it."""
        return self.pods.store.get(key)

    def asked_about(self, key: str) -> Pod | None:
        """A pod of this node, also where the informer does not know it yet: whoever is refused was fetched for that."""
        return self.get(key) or self._fetched.get(key)

    async def fetch(self, keys: Iterable[str]) -> dict[str, Pod | None]:
        """These pods as they are now, None for those that are gone. Raises `KubeError`."""
        wanted = tuple(keys)
        try:
            async with asyncio.timeout(FETCH_S):
                self._fetched = dict(zip(wanted, await asyncio.gather(*map(self._fetch, wanted)), strict=True))
                return self._fetched
        except TimeoutError as error:
            raise ApiUnavailableError(f"no answer about pods {', '.join(wanted)} within {FETCH_S:g} s") from error

    async def _fetch(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        try:
            return await self._client.get(PODS, name, namespace)
        except NotFoundError:
            return None

    def _grant_of(self, pod: Pod) -> Grant | str | None:
        """The pod's grant, what is wrong with it, or None where a pod needs none. Signatures are checked once."""
        known = self._verified.get(pod.metadata.uid)
        if known is not None and known[0] == pod.metadata.annotations:
            return known[1]
        found = self._verify(pod)
        if self.pods.store.by_uid(pod.metadata.uid) is not None:
            self._verified[pod.metadata.uid] = (pod.metadata.annotations, found)
        return found

    def _verify(self, pod: Pod) -> Grant | str | None:
        try:
            grant = signing.verify(pod.metadata.annotations, pod_uid=pod.metadata.uid, node=self._node, keys=self._keys)
        except signing.GrantError as error:
            return str(error) if self._keys else f"{error} ({self._no_keys})"
        asked = asks(pod)
        if grant is None:
            return UNGRANTED if asked else None
        granted = {part.container: len(part.shares) for part in grant.containers}
        if granted != asked:
            return f"the grant covers {granted or 'nothing'}, the pod's containers ask for {asked or 'nothing'}"
        return grant

    def _forget(self, pod: Pod) -> None:
        self._verified.pop(pod.metadata.uid, None)

    def _take_keys(self, config_map: ConfigMap) -> None:
        self._keys, problems = signing.parse_public_keys(config_map.data.get(GRANT_KEY_CONFIGMAP_FIELD, ""))
        self._verified.clear()
        for problem in problems:
            log.error("a key in the ConfigMap is unusable", config_map=key_of(config_map), problem=problem)
