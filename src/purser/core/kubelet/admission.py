"""Whether a kubelet takes a pod: the admission handler of its topology manager, which is where everything is given out.

Under policy none each container in turn gets what it asks for. Under the others the managers hint at NUMA nodes first:
for each container in turn (scope container), so that it sees what those before it took, or once for the pod (scope
pod). A pod that is refused half-way keeps what it was given until kubelet frees what inactive pods hold, which is what
the next admission begins with.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from purser.core.kubelet import devicemanager, managers
from purser.core.kubelet.asks import Admission, AdmissionOutcome, Rejection, ResourceManager
from purser.core.kubelet.config import TopologyScope
from purser.core.kubelet.errors import UNEXPECTED_ADMISSION_ERROR
from purser.core.kubelet.hints import NO_AFFINITY, Hint, ProviderHints
from purser.core.kubelet.managers import Reusable, Turn
from purser.core.kubelet.pod import KubeletPod
from purser.core.kubelet.state import ContainerKey, KubeletNode, KubeletState
from purser.core.kubelet.topologymanager import HintMerger, policy_for
from purser.core.kubelet.versions import behaviour

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
_NOT_ALIGNED_MESSAGE = "Resources cannot be allocated with Topology locality"


def admit(
    node: KubeletNode,
    state: KubeletState,
    pod: KubeletPod,
    active: Collection[str] | None,
    running: Collection[str] = (),
) -> Admission:
    """Admit a pod: yields what kubelet asks of plugins, ends with the state it leaves and why the pod was refused.

    ``active``: uids of the pods that count as alive; what others hold is freed first. None while kubelet's pod sources
    are not ready, soon after its start: then nothing is freed, and a container in ``running`` (names of those of this
    pod that run already) is not held against devices that are gone.
    Raises `purser.core.kubelet.errors.KubeletStartError` where kubelet would not have started with this configuration.
    """
    policy = policy_for(node.config, node.machine)
    alive = None if active is None else frozenset(active) | {pod.uid}
    if policy.asks_for_hints and alive is not None:
        state = managers.free_all_but(state, alive)
    pod_hint, refusal = _align_pod(policy, node, state, pod)
    if refusal is not None:
        return AdmissionOutcome(state, refusal)
    reusable = Reusable()
    for container in pod.containers:
        hint = pod_hint
        if hint is None:
            hint, refusal = align(policy, managers.hints(node, state, pod, container, reusable), container.name)
        if refusal is None:
            state = _store_hint(state, (pod.uid, container.name), hint)
            turn = Turn(pod, container, hint, alive, is_running=alive is None and container.name in running)
            state, refusal, reusable = yield from managers.allocate(node, state, turn, reusable)
        if refusal is not None:
            return AdmissionOutcome(state, refusal)
    return AdmissionOutcome(state)


def allocate_at_creation(
    node: KubeletNode, state: KubeletState, pod: KubeletPod, name: str, active: Collection[str] | None
) -> Admission:
    """Give the devices that it lacks to a container that is about to be created (GetDeviceRunContainerOptions).

    It lacks those of resources that kubelet did not know when it admitted the pod: their plugin registered afterwards.
    The refusal's message is kubelet's error as it is, and leads to CreateContainerConfigError.
    """
    alive = None if active is None else frozenset(active) | {pod.uid}
    container = next(each for each in pod.containers if each.name == name)
    left = devicemanager.reusable_devices(behaviour(node.config.parsed_version), state.devices, pod, name)
    hint = state.hints.get((pod.uid, name), NO_AFFINITY)
    state, error, _ = yield from devicemanager.allocate(node, state, pod, container, hint, left, alive)
    return AdmissionOutcome(
        state, None if error is None else Rejection(ResourceManager.DEVICE, name, UNEXPECTED_ADMISSION_ERROR, error)
    )


def align(
    policy: HintMerger, providers_hints: Sequence[ProviderHints], container: str = ""
) -> tuple[Hint, Rejection | None]:
    """The merged hint of a container, or of a whole pod, and the refusal if it will not do."""
    hint, is_admitted = policy.merge(providers_hints)
    if is_admitted:
        return hint, None
    return hint, Rejection(ResourceManager.TOPOLOGY, container, TOPOLOGY_AFFINITY_ERROR, _NOT_ALIGNED_MESSAGE)


def _align_pod(
    policy: HintMerger, node: KubeletNode, state: KubeletState, pod: KubeletPod
) -> tuple[Hint | None, Rejection | None]:
    """The hint that holds for all containers; None where each one gets its own."""
    if not policy.asks_for_hints:
        return NO_AFFINITY, None
    if node.config.topology_scope != TopologyScope.POD:
        return None, None
    return align(policy, managers.pod_hints(node, state, pod))


def _store_hint(state: KubeletState, key: ContainerKey, hint: Hint) -> KubeletState:
    """What GetAffinity says while the container is allocated, and after; nothing is kept of no affinity."""
    return state if hint == NO_AFFINITY else replace(state, hints={**state.hints, key: hint})
