"""Choosing devices for containers, and having plugins allocate them."""

from collections.abc import Collection, Generator
from heapq import nsmallest

import msgspec
from msgspec.structs import replace

from purser.core.kubelet.asks import (
    Allocate,
    Answer,
    AnswerWithDevices,
    Ask,
    FailedAnswer,
    PlainAnswer,
    PreferredAllocation,
)
from purser.core.kubelet.devicemanager.affinity import filter_by_affinity
from purser.core.kubelet.devicemanager.holdings import free_all_but, held_by, hold, recount_allocated
from purser.core.kubelet.devicemanager.plugins import is_device_resource, with_plugins_of
from purser.core.kubelet.devicemanager.topologyhints import Reusable
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import Mask
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, releases_resources
from purser.core.kubelet.state import ContainerKey, DeviceManagerState, KubeletNode, KubeletState, PluginResource
from purser.core.kubelet.versions import Behaviour, behaviour


class DeviceDemand(msgspec.Struct, frozen=True):
    """What one container asks of one resource."""

    container: ContainerKey
    resource: str
    required: int
    mask: Mask | None = None
    """The topology manager's wish; None: any node."""
    reusable: frozenset[str] = frozenset()
    """The devices of the pod's init containers that ended."""
    is_running: bool = False
    """kubelet restarted, its pod sources are not ready yet, and the container already runs."""


class DeviceChoice(msgspec.Struct, frozen=True):
    """Which devices a container is to have."""

    state: KubeletState
    """With the chosen devices counted as taken; on an error with those that were chosen before it (kubelet leaves them
    so until it counts again)."""
    device_ids: frozenset[str] = frozenset()
    """Empty: there is nothing to allocate."""
    error: str | None = None
    """kubelet's text."""


def allocate(
    node: KubeletNode,
    state: KubeletState,
    pod: KubeletPod,
    container: KubeletContainer,
    hint: Hint,
    reusable: Reusable,
    active: Collection[str] | None,
    is_running: bool = False,
) -> Generator[Ask, Answer, tuple[KubeletState, str | None, Reusable]]:
    """Give one container its devices of all resources (Allocate); ends with kubelet's error text, or None.

    One Allocate call for each resource. Nothing is rolled back: devices of earlier resources stay with the container.
    What pods hold that are not ``active`` is freed first, but only where the container asks for a device (None: nothing
    is). For ``is_running`` see `DeviceDemand`.
    Resources go by name, and inside a group of equally good devices the pick goes by id: kubelet's is random in both.
    """
    rules = behaviour(node.config.parsed_version)
    not_freed = active
    for resource, required in sorted(container.limits.items()):
        if not is_device_resource(state.devices, resource):
            continue
        if not_freed is not None:
            state, not_freed = replace(state, devices=free_all_but(state.devices, not_freed)), None
        mine = reusable.get(resource, frozenset())
        want = DeviceDemand((pod.uid, container.name), resource, required, hint.mask, mine, is_running)
        choice = yield from devices_to_allocate(rules, state, want)
        state, error = choice.state, choice.error
        if choice.device_ids and error is None:
            state, error = yield from _call_allocate(rules, state, want, choice.device_ids)
        if error is not None:
            return state, error, reusable
    return state, None, _reusable_after(rules, state.devices, (pod.uid, container.name), container, reusable)


def devices_to_allocate(
    rules: Behaviour, state: KubeletState, want: DeviceDemand
) -> Generator[Ask, Answer, DeviceChoice]:
    """Choose devices (devicesToAllocate).

    First those of init containers, whatever their health and place, then free ones on the wished NUMA nodes, then free
    ones elsewhere. A plugin that wants to is asked which of them it prefers as soon as there is a choice; of its answer
    counts what was free before it was asked, and kubelet fills up what is missing. Picks are by id (kubelet: random).
    """
    error = _refusal(rules, state.devices, want)
    if error is not None or not _needs_devices(rules, state.devices, want):
        return DeviceChoice(state, error=error)
    taken = _first(want.reusable, want.required)
    state = _take(state, want.resource, taken)
    if len(taken) == want.required:
        return DeviceChoice(state, taken)
    return (yield from _choose_free(rules, state, want, taken))


def _choose_free(
    rules: Behaviour, state: KubeletState, want: DeviceDemand, taken: frozenset[str]
) -> Generator[Ask, Answer, DeviceChoice]:
    """Fill up a choice from the free devices."""
    known = state.devices.resources[want.resource]
    available = known.healthy - state.devices.allocated[want.resource]
    needed = want.required - len(taken)
    if len(available) < needed:
        return DeviceChoice(state, error=_unavailable(want.resource, needed, len(available)))
    groups = filter_by_affinity(rules, known, available, want.mask)
    offered = groups.aligned
    rest: tuple[frozenset[str], ...] = (groups.aligned,)
    if needed >= len(groups.aligned):
        taken |= groups.aligned
        state = _take(state, want.resource, groups.aligned)
        offered, rest = available, groups[1:]
    preferred: frozenset[str] | str = frozenset()
    if len(taken) < want.required:
        state, preferred = yield from _preferred(state, known, want, offered | taken, taken)
    if isinstance(preferred, str):
        return DeviceChoice(state, error=preferred)
    for group in (preferred & offered, *rest):
        taken |= _first(group - taken, want.required - len(taken))
    return DeviceChoice(_take(state, want.resource, taken), taken)


def _refusal(rules: Behaviour, state: DeviceManagerState, want: DeviceDemand) -> str | None:
    held = held_by(state, want.container).get(want.resource)
    if held is not None and len(held.device_ids) != want.required:
        return (
            f'pod "{want.container[0]}" container "{want.container[1]}" changed request for resource '
            f'"{want.resource}" from {len(held.device_ids)} to {want.required}'
        )
    known = state.resources.get(want.resource, PluginResource())
    if rules.checks_health_of_held_devices:
        return (
            None if want.is_running else _health_problem(known, want.resource, held.device_ids if held else frozenset())
        )
    if known.is_listed or held is not None or want.required == 0:
        return None
    return f"can't allocate unregistered device {want.resource}"


def _health_problem(known: PluginResource, resource: str, held: frozenset[str]) -> str | None:
    """What newer kubelets check before all else; a request of 0 fails by it as well."""
    if not known.is_listed:
        return f"cannot allocate unregistered device {resource}"
    if not known.healthy:
        return f"no healthy devices present; cannot allocate unhealthy devices {resource}"
    if not held <= known.healthy:
        return f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
    return None


def _needs_devices(rules: Behaviour, state: DeviceManagerState, want: DeviceDemand) -> bool:
    """Not where it has what it asks for, or runs already: then it has, whether kubelet remembers it or not."""
    has_all = want.required == 0 or want.resource in held_by(state, want.container)
    return not has_all and not (want.is_running and rules.checks_health_of_held_devices)


def _unavailable(resource: str, needed: int, available: int) -> str:
    return f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {available}"


def _preferred(
    state: KubeletState, known: PluginResource, want: DeviceDemand, available: frozenset[str], taken: frozenset[str]
) -> Generator[Ask, Answer, tuple[KubeletState, frozenset[str] | str]]:
    """The ids that the plugin prefers, none where it has no preference; a text when the call failed."""
    if not known.options.preferred_allocation:
        return state, frozenset()
    ask = PreferredAllocation(want.container, want.resource, available, taken, want.required, state)
    state, answer = yield from _asked(ask)
    if isinstance(answer, FailedAnswer):
        return state, f"device plugin GetPreferredAllocation rpc failed with err: {answer.message}"
    if isinstance(answer, bytes):
        raise TypeError(
            f"the response to GetPreferredAllocation for {want.resource} is bytes: send a tuple of device IDs"
        )
    return state, frozenset(answer)


def _call_allocate(
    rules: Behaviour, state: KubeletState, want: DeviceDemand, ids: frozenset[str]
) -> Generator[Ask, Answer, tuple[KubeletState, str | None]]:
    """One Allocate call. After a failure kubelet recounts the allocated devices, after an empty answer it does not."""
    if state.devices.resources[want.resource].stopped_at is not None:
        # kubelet prints its endpoint's fields, pointers among them, where the resource stands here.
        return _recount_devices(state), f"endpoint {want.resource} has been stopped"
    state, answer = yield from _asked(Allocate(want.container, want.resource, ids, state))
    if isinstance(answer, FailedAnswer):
        return state if answer.is_empty_response else _recount_devices(state), answer.message
    if isinstance(answer, tuple):
        raise TypeError(
            f"the response to Allocate for {want.resource} is a tuple of device IDs: "
            f"send a serialized ContainerAllocateResponse"
        )
    return replace(state, devices=hold(rules, state.devices, want.container, want.resource, ids, answer)), None


def _asked(ask: Ask) -> Generator[Ask, Answer, tuple[KubeletState, PlainAnswer]]:
    """The answer, and the state to go on with: kubelet holds no lock while it asks, so that lists arrive meanwhile."""
    answer = yield ask
    if not isinstance(answer, AnswerWithDevices):
        return ask.state, answer
    return replace(ask.state, devices=with_plugins_of(ask.state.devices, answer.devices)), answer.answer


def _reusable_after(
    rules: Behaviour, state: DeviceManagerState, key: ContainerKey, container: KubeletContainer, reusable: Reusable
) -> Reusable:
    """An init container leaves its devices to those after it; any other keeps them."""
    changed = dict(reusable)
    for resource, allocation in held_by(state, key).items():
        before = reusable.get(resource, frozenset())
        is_reusable = releases_resources(rules, container)
        changed[resource] = before | allocation.device_ids if is_reusable else before - allocation.device_ids
    return changed


def reusable_devices(rules: Behaviour, state: DeviceManagerState, pod: KubeletPod, name: str) -> Reusable:
    """The devices that the init containers before this one leave to it, by resource."""
    left: Reusable = {}
    for container in pod.containers:
        if container.name == name:
            break
        left = _reusable_after(rules, state, (pod.uid, container.name), container, left)
    return left


def _first(ids: frozenset[str], count: int) -> frozenset[str]:
    return ids if len(ids) <= count else frozenset(nsmallest(count, ids))


def _take(state: KubeletState, resource: str, ids: frozenset[str]) -> KubeletState:
    taken = state.devices.allocated.get(resource, frozenset()) | ids
    return replace(state, devices=replace(state.devices, allocated={**state.devices.allocated, resource: taken}))


def _recount_devices(state: KubeletState) -> KubeletState:
    return replace(state, devices=recount_allocated(state.devices))
