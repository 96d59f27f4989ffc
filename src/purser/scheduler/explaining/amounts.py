"""Less of one resource in one container, or less by KAI's annotations: the largest amount that fits."""

from collections.abc import Iterator, Sequence

import msgspec

from purser.adapters.pods import pod_spec
from purser.core.device.resources import is_gpu_resource
from purser.core.dialects import hami, is_device_word, kai
from purser.core.kubernetes.quantities import MIB, QuantityError, QuantityLike, quantity_ceil, quantity_milli
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Reason
from purser.core.vendors.catalogue import FAMILIES, FAMILY_NAMES
from purser.kube.objects import Container, Pod
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.edits import containers, with_amount
from purser.scheduler.explaining.searching import MAX_TRIED, Steps, fewer_cpus, largest_that_fits
from purser.scheduler.explaining.trial import PodTrial

_SERVED_FAMILIES = frozenset(FAMILY_NAMES)
_WORDS_WITHOUT_MEMORY = {GPU_RESOURCE, hami.GPUCORES, hami.PRIORITY}
"""Words of a container that names no memory, and so gets all of each GPU's."""

_ANNOTATIONS = {
    GPU_RESOURCE: kai.GPU_FRACTION_NUM_DEVICES,
    hami.GPUMEM: kai.KAI_GPU_MEMORY,
    hami.GPUMEM_PERCENTAGE: kai.GPU_FRACTION,
}
"""What the author of a pod in KAI's words has written where the webhook wrote these."""


class _Amount(msgspec.Struct, frozen=True):
    """An amount that one container may lower."""

    container: str
    resource: str
    asked: int
    """0: no amount, but whole GPUs."""
    values: Sequence[int]
    """Lower ones, ascending. Where one fits, all before it do, unless each of them is tried."""
    is_tried: bool
    """Whether each is."""

    def spelled(self, value: int) -> QuantityLike:
        """As a pod has it."""
        if self.resource == "cpu":
            return f"{value}m" if value % 1000 else str(value // 1000)
        return f"{value}Mi" if self.resource == "memory" else str(value)


def smaller_amounts(trial: PodTrial) -> Iterator[Suggestion | None]:
    """For each container and resource the largest amount that fits; None after each verdict of the search."""
    for axis in _axes(trial):
        found = yield from _largest(trial, axis)
        if found is not None:
            text, change = _describe_suggestion(trial.pod, axis, found)
            yield from trial.suggest_if_it_fits(ChangeKind.AMOUNT, text, change, _changed(trial.pod, axis, found))


def _describe_suggestion(pod: Pod, axis: _Amount, value: int) -> tuple[str, SuggestedChange]:
    """In a sentence, and in fields; as the pod's author has written it."""
    if annotation := _annotation(pod, axis):
        amount, asked = _kai_amount(annotation, value), _kai_amount(annotation, axis.asked)
        text = f"the pod's annotation {annotation} is {amount} instead of {asked}"
        return text, SuggestedChange(annotation=annotation, amount=amount)
    amount = str(axis.spelled(value))
    instead = axis.spelled(axis.asked) if axis.asked else "all of its GPUs' memory"
    text = f"container {axis.container} requests {axis.resource}: {amount} instead of {instead}"
    return text, SuggestedChange(container=axis.container, resource=axis.resource, amount=amount)


def _annotation(pod: Pod, axis: _Amount) -> str:
    """That stands for the resource of the container; empty: none."""
    spec = pod_spec(pod)
    asks = any(each.name == axis.container and kai.claims(spec, each) for each in spec.containers)
    return _ANNOTATIONS.get(axis.resource, "") if asks else ""


def _kai_amount(annotation: str, value: int) -> str:
    return f"{value / 100:.2f}" if annotation == kai.GPU_FRACTION else str(value)


def _axes(trial: PodTrial) -> Iterator[_Amount]:
    if not (trial.short or trial.reasons):
        return
    for container in containers(trial.pod):
        asked = {**container.resources.limits, **container.resources.requests}
        for resource, quantity in asked.items():
            if _can_help(trial, resource):
                yield from _axes_of(trial, container, resource, quantity)
        words = {name for name in asked if is_device_word(name, _SERVED_FAMILIES)}
        if GPU_RESOURCE in words <= _WORDS_WITHOUT_MEMORY and trial.reasons:
            yield _Amount(container.name, hami.GPUMEM, 0, range(1, trial.judge.largest_gpu_mib + 1), False)


def _can_help(trial: PodTrial, resource: str) -> bool:
    """Whether less of a resource can help: somewhere it is short, or what Purser or kubelet counts is."""
    if resource in trial.short:
        return True
    if is_device_word(resource, _SERVED_FAMILIES):
        return bool(trial.reasons) and resource != hami.PRIORITY
    return resource in ("cpu", "memory") and Reason.KUBELET_WOULD_REJECT in trial.reasons


def _axes_of(trial: PodTrial, container: Container, resource: str, quantity: QuantityLike) -> Iterator[_Amount]:
    """One at most; none for what cannot be lowered."""
    try:
        amount = quantity_milli(quantity) if resource == "cpu" else quantity_ceil(quantity)
    except QuantityError:
        return
    if resource == "memory":
        amount = -(-amount // MIB)
    if amount <= 1:
        return
    name = container.name
    if resource == "cpu" and Reason.KUBELET_WOULD_REJECT in trial.reasons:
        yield _Amount(name, resource, amount, fewer_cpus(amount), True)
        return
    sizes = next((f.memory.allowed for f in FAMILIES if f.memory is not None and f.memory.resource == resource), ())
    if sizes:
        yield _Amount(name, resource, amount, sorted(size for size in sizes if size < amount), True)
        return
    is_count = is_gpu_resource(resource) or resource.endswith("-number")
    yield _Amount(name, resource, amount, range(1, amount), is_count and amount <= MAX_TRIED)


def _changed(pod: Pod, axis: _Amount, value: int) -> Pod:
    return with_amount(pod, axis.container, axis.resource, axis.spelled(value))


def _largest(trial: PodTrial, axis: _Amount) -> Steps[int | None]:
    def fits(value: int) -> bool:
        return bool(trial.fits(_changed(trial.pod, axis, value)))

    return largest_that_fits(axis.values, fits, is_tried=axis.is_tried)
