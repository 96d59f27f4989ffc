"""The pods of this node and the grants they carry, as the API server knows them.

A grant counts only where its signature, pod and node are right and it covers exactly the containers that ask kubelet
for devices. The informer is nearly always ahead of kubelet's admission; where it lags, `NodePods.fetch` asks for single
pods, because kubelet lists pods by name and a pod may have been replaced by another of its name.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from purser.adapters.pods import devices_asked, pod_spec
from purser.agent.allocation.answers import ContainerFacts
from purser.agent.allocation.pod_statuses import NODE_PODS
from purser.core.dialects import DialectError, hami, restore_pod
from purser.core.dialects.policies import node_policy_word
from purser.core.grant import signing
from purser.core.grant.enforcement import spec_hold
from purser.core.model import Grant
from purser.core.names import (
    AWAITS_GRANT,
    AWAITS_GRANT_ANNOTATION,
    GRANT_KEY_CONFIGMAP,
    GRANT_KEY_CONFIGMAP_FIELD,
    GRANT_SIGNATURE_ANNOTATION,
)
from purser.core.wording import counted
from purser.kube.client import Client
from purser.kube.errors import ApiUnavailableError, DecodeError, KubeError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.objects import ConfigMap, Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import CONFIG_MAPS, PODS, key_of
from purser.recent import Recent

log = structlog.get_logger("purser.agent")

UNGRANTED_PROBLEM = "the pod requests devices but has no grant"
"""The problem that time does not heal: node and grant come in one write."""

UNADOPTED_PROBLEM = "another scheduler placed the pod, and Purser's scheduler has not granted it GPUs yet"
"""The problem that Purser's scheduler heals, or makes `UNGRANTED_PROBLEM`."""

FAILED = "the agent failed to process the pod: see the agent's log"
"""The problem of a pod on which the agent itself fails."""

POD_FETCH_TIMEOUT_S = 3.0
"""How long the API server may take over some pods: kubelet admits nothing else meanwhile."""

_MAX_UNKNOWN_SIGNATURES = 512
"""More pods than a node runs."""


class LivePods(msgspec.Struct, frozen=True):
    """Live pods that have to do with devices, by pod key."""

    grants: Mapping[str, Grant]
    problems: Mapping[str, str]
    """Why a pod that asks for devices, or carries a grant, has none that counts."""
    strangers: frozenset[str] = frozenset()
    """All live pods without a valid grant."""
    kept: Mapping[str, str] = {}
    """Grants that the annotations do not have (any more), and which this agent verified before it allocated devices for
    them: why the annotations do not count."""

    @property
    def live(self) -> frozenset[str]:
        """All pods that are on this node and have not ended."""
        return self.strangers | self.grants.keys()


def container_facts(pod: Pod, container: str) -> ContainerFacts:
    """What of a container's spec matters for what it is given."""
    spec = pod_spec(pod)
    with suppress(DialectError):  # the webhook lets none in; without it the container has what it shows
        spec = restore_pod(spec)
    found = next((each for each in spec.containers if each.name == container), None)
    if found is None:
        return ContainerFacts()
    return ContainerFacts(priority=hami.task_priority(found), hold=spec_hold(found), pod=spec)


class NodePods:
    """The informers of this node's pods and of the scheduler's keys, and what follows from them."""

    def __init__(
        self,
        client: Client,
        node: str,
        namespace: str,
        remembered: Callable[[Pod], Grant | None] = lambda pod: None,
    ) -> None:
        """``remembered``: the grant for which a pod was given devices, where that is known: it was verified then."""
        self._client = client
        self._node = node
        self.pods = Informer(client, NODE_PODS, field_selector=f"spec.nodeName={node}")
        self.key_maps: Informer[ConfigMap] = Informer(
            client, CONFIG_MAPS, namespace, field_selector=f"metadata.name={GRANT_KEY_CONFIGMAP}"
        )
        self._keys: tuple[Ed25519PublicKey, ...] = ()
        self._no_keys = f"this agent has no keys: ConfigMap {namespace}/{GRANT_KEY_CONFIGMAP} is missing or empty"
        self._verified: dict[str, tuple[Mapping[str, str], Grant | str | None]] = {}
        self._remembered = remembered
        self._fetched: dict[str, Pod | None] = {}
        """By the last `fetch`."""
        self._knows_hami = True
        self._unknown_to_all: Recent[str, str] = Recent(_MAX_UNKNOWN_SIGNATURES)
        """The signature of a pod, by uid, for which the keys were listed again, and of which none had made it."""
        self.key_maps.add_handler(
            on_add=self._take_keys,
            on_update=lambda _, new: self._take_keys(new),
            on_delete=lambda old: self._take_keys(ConfigMap(metadata=old.metadata)),
        )
        self.pods.add_handler(on_delete=self._forget)

    def view(self, fetched: Mapping[str, Pod | None] | None = None) -> LivePods:
        """The live pods of this node, where ``fetched`` (None: gone) is newer than the informer."""
        pods = {**self.pods.store, **(fetched or {})}
        live = {key: self._grant_of(pod) for key, pod in pods.items() if pod is not None and self._is_live(pod)}
        grants = {key: found for key, found in live.items() if isinstance(found, Grant)}
        problems = {key: found for key, found in live.items() if isinstance(found, str)}
        kept = {}
        for key, problem in problems.items():
            pod = pods[key]
            if pod is not None and (remembered := self._remembered(pod)) is not None:
                grants[key], kept[key] = remembered, problem
        problems = {key: problem for key, problem in problems.items() if key not in kept}
        return LivePods(grants, problems, frozenset(live.keys() - grants.keys()), kept)

    def lacks_valid_grant(self, pod: Pod) -> bool:
        """Whether a pod on this node asks for devices or brings a grant, and none of its annotations counts."""
        return self._is_live(pod) and isinstance(self._grant_of(pod), str)

    def trusted_grant(self, pod: Pod) -> Grant | None:
        """The grant in a pod's annotations, where they count, whether or not the pod has ended."""
        found = self._grant_of(pod)
        return found if isinstance(found, Grant) else None

    def is_ungranted(self, pod: Pod) -> bool:
        """Whether a pod asks for devices, and its annotations say nothing of a grant."""
        return self._grant_of(pod) in (UNGRANTED_PROBLEM, UNADOPTED_PROBLEM)

    def awaits_grant(self, pod: Pod) -> bool:
        """Whether another scheduler placed the pod, and Purser's has yet to grant or refuse it GPUs."""
        return self._grant_of(pod) == UNADOPTED_PROBLEM

    def _is_live(self, pod: Pod) -> bool:
        return pod.spec.node_name == self._node and not is_terminal(pod)

    def get(self, key: str) -> Pod | None:
        """A pod of this node as the informer knows it."""
        return self.pods.store.get(key)

    def node_policy(self, key: str) -> str:
        """The node policy that a pod names, in a word; empty: it names none, or is not known."""
        pod = self.get(key)
        return "" if pod is None else node_policy_word(pod.metadata.annotations, "")

    def look_up_pod(self, key: str) -> Pod | None:
        """A pod of this node, also where the informer does not have it yet: refused pods were fetched for that."""
        return self.get(key) or self._fetched.get(key)

    async def fetch(self, keys: Iterable[str]) -> dict[str, Pod | None]:
        """These pods as they are now, None for those that are gone, and the keys where one is missing. Raises
        `KubeError`."""
        wanted = tuple(keys)
        try:
            async with asyncio.timeout(POD_FETCH_TIMEOUT_S):
                self._fetched = dict(zip(wanted, await asyncio.gather(*map(self._fetch, wanted)), strict=True))
        except TimeoutError as error:
            raise ApiUnavailableError(
                f"the API server did not return pod{'' if len(wanted) == 1 else 's'} {', '.join(wanted)} within "
                f"{POD_FETCH_TIMEOUT_S:g} s"
            ) from error
        unknown = [pod for pod in self._fetched.values() if pod is not None and self._is_by_unknown_key(pod)]
        is_new = any(self._unknown_to_all.get(pod.metadata.uid) != _signature(pod) for pod in unknown)
        if is_new and await self._renew_keys():
            for pod in unknown:
                self._unknown_to_all.put(pod.metadata.uid, _signature(pod))
        return self._fetched

    def set_hami(self, *, is_there: bool) -> None:
        """Whether the node has a registration of HAMi's: only then do HAMi's records on pods count. Until that is known
        they do."""
        if is_there != self._knows_hami:
            self._knows_hami = is_there
            self._verified.clear()

    def _is_by_unknown_key(self, pod: Pod) -> bool:
        problem = self._grant_of(pod) if self._is_live(pod) else None
        return isinstance(problem, str) and problem.startswith(signing.UNKNOWN_KEY)

    async def _renew_keys(self) -> bool:
        """The watch of the keys may lag as that of the pods may, and a refusal is for good. Whether that succeeded."""
        try:
            async with asyncio.timeout(POD_FETCH_TIMEOUT_S):
                await self.key_maps.wait_for_relist()
        except (TimeoutError, KubeError) as error:
            log.warning("Cannot refresh the scheduler's keys", error=str(error))
            return False
        return True

    async def _fetch(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        try:
            return await self._client.get(PODS, name, namespace)
        except NotFoundError:
            return None
        except DecodeError as error:  # it is there: others, who are asked about with it, are not to wait for it
            log.warning("Cannot read a pod; using its last known state", pod=key, error=str(error))
            return self.get(key)

    def _grant_of(self, pod: Pod) -> Grant | str | None:
        """The pod's grant, what is wrong with it, or None where a pod needs none. Signatures are checked once."""
        known = self._verified.get(pod.metadata.uid)
        if known is not None and known[0] == pod.metadata.annotations:
            return known[1]
        found: Grant | str | None = FAILED
        with self.pods.failures.guard(PODS, pod):
            found = self._verify(pod)
        if self.pods.store.by_uid(pod.metadata.uid) is not None:
            self._verified[pod.metadata.uid] = (pod.metadata.annotations, found)
        return found

    def _verify(self, pod: Pod) -> Grant | str | None:
        try:
            grant = signing.verify(pod.metadata.annotations, pod_uid=pod.metadata.uid, node=self._node, keys=self._keys)
        except signing.GrantError as error:
            return str(error) if self._keys else f"{error} ({self._no_keys})"
        asked = devices_asked(pod)
        if grant is None and not asked:
            return None
        if grant is None:
            annotations = pod.metadata.annotations
            is_by_hami = self._knows_hami and annotations.get(hami.VGPU_NODE) == self._node
            waits = is_by_hami and annotations.get(hami.BIND_PHASE) == hami.ALLOCATING
            return (
                UNADOPTED_PROBLEM
                if waits or annotations.get(AWAITS_GRANT_ANNOTATION) == AWAITS_GRANT
                else UNGRANTED_PROBLEM
            )
        granted = {part.container: len(part.shares) for part in grant.containers}
        if granted != asked:
            return f"the grant covers {_by_container(granted)}, but the pod requests {_by_container(asked)}"
        return grant

    def _forget(self, pod: Pod) -> None:
        self._verified.pop(pod.metadata.uid, None)
        self._unknown_to_all.forget(pod.metadata.uid)

    def _take_keys(self, config_map: ConfigMap) -> None:
        self._keys, problem = signing.parse_public_keys(config_map.data.get(GRANT_KEY_CONFIGMAP_FIELD, ""))
        self._verified.clear()
        self._unknown_to_all.clear()
        if problem:
            log.error("Keys in the ConfigMap are invalid", config_map=key_of(config_map), problem=problem)


def _by_container(counts: Mapping[str, int]) -> str:
    """``2 devices for container main``; ``counts``: of devices, by container."""
    return ", ".join(f"{counted(count, 'device')} for container {name}" for name, count in counts.items()) or "nothing"


def _signature(pod: Pod) -> str:
    return pod.metadata.annotations.get(GRANT_SIGNATURE_ANNOTATION, "")
