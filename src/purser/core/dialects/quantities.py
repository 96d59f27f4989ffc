"""Whole numbers in resource quantities, as the API server writes them.

A dialect's quantities are counts, percentages and MiB: whole numbers. The API server rewrites them in canonical form,
so that ``3000`` comes back as ``3k``: decimal suffixes and exponents are therefore part of plain numbers. Binary
suffixes never appear by themselves: ``16Gi`` for a number of MiB is meant as bytes.
"""

from decimal import Decimal

from purser.core.dialects.errors import Problems
from purser.core.kubernetes.quantities import MIB, QuantityError, parse_quantity, quantity_ceil
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec

MAX_DEVICE_MEMORY_MIB = 1 << 20
"""1 TiB is several times any device's memory: a larger number was meant as bytes."""


class NotWholeError(ValueError):
    """A quantity that is not a whole number; `in_bytes` is what it comes to where it looks like bytes."""

    def __init__(self, text: str, in_bytes: Decimal | None = None) -> None:
        super().__init__(text)
        self.in_bytes = in_bytes


def whole_number(text: str) -> int:
    """The value of a quantity. Raises `NotWholeError` for fractions, binary suffixes and what is not a quantity."""
    try:
        value, whole = parse_quantity(text.strip()), quantity_ceil(text.strip())
    except QuantityError as error:
        raise NotWholeError(text) from error
    if text.strip().endswith("i"):
        raise NotWholeError(text, in_bytes=value)
    if value < whole:  # a whole number beyond what Kubernetes counts comes out smaller
        raise NotWholeError(text)
    return whole


def is_zero(text: str) -> bool:
    """Whether a quantity is none of its resource, however that is written."""
    try:
        return whole_number(text) == 0
    except NotWholeError as error:
        return error.in_bytes == 0


def amount(container: ContainerSpec, resource: str, low: int, high: int, unit: str, problems: Problems) -> int | None:
    """As `ranged_number`, of a number of something: ``unit`` is as in "a number of GPUs"."""
    return ranged_number(container, resource, low, high, f"{unit} from {low} to {high}", problems)


def ranged_number(
    container: ContainerSpec, resource: str, low: int, high: int, wanted: str, problems: Problems
) -> int | None:
    """A container's whole number of a resource; None where it names none, or a bad one, which is noted.

    A zero that is not an answer (``low`` is more) is as absent: what a LimitRange's defaults say of all containers.
    ``wanted``: what it must be, in words that follow "must be".
    """
    text = container.quantity(resource)
    if text is None:
        return None
    if is_zero(text):
        return None if low > 0 else 0
    try:
        value = whole_number(text)
    except NotWholeError:
        problems.add(f"{_subject(container, resource, text)} is not an integer: must be {wanted}")
        return None
    if not low <= value <= high:
        problems.add(f"{_subject(container, resource, text)} is out of range: must be {wanted}")
        return None
    return value


def memory_mib(container: ContainerSpec, resource: str, problems: Problems, unit_mib: int = 1) -> int | None:
    """A container's MiB per device; None where it names none, or a bad one, which is noted with the number to write.

    ``unit_mib``: what one of the resource is.
    """
    if unit_mib != 1:
        units = amount(
            container, resource, 1, MAX_DEVICE_MEMORY_MIB // unit_mib, f"a number of {unit_mib} MiB units", problems
        )
        return None if units is None else units * unit_mib
    text = container.quantity(resource)
    if text is None or is_zero(text):
        return None
    try:
        value = whole_number(text)
    except NotWholeError as error:
        hint = _suggest_mib(error.in_bytes) or ", as a whole number such as 16384"
        problems.add(f"{_subject(container, resource, text)} must be in MiB without a suffix{hint}")
        return None
    if value < 1:
        problems.add(f"{_subject(container, resource, text)} is not an amount of memory: must be 1 or more MiB")
        return None
    if value > MAX_DEVICE_MEMORY_MIB:
        hint = _suggest_mib(Decimal(value)) or ": must be in MiB, such as 16384"
        problems.add(f"{_subject(container, resource, text)} exceeds the memory of any device{hint}")
        return None
    return value


def in_bytes(container: ContainerSpec, resource: str, problems: Problems) -> int | None:
    """A container's MiB per device where it names bytes, by a suffix; None where it does not, or a bad one is noted."""
    text = (container.quantity(resource) or "").strip()
    if text.isdigit():
        return None
    try:
        mib = int(parse_quantity(text) / MIB) if text else 0
    except QuantityError:
        return None
    if text and not 1 <= mib <= MAX_DEVICE_MEMORY_MIB:
        problems.add(
            f"{_subject(container, resource, text)} is not a valid amount of device memory: must be bytes such as "
            "2048Mi, or a number of GiB such as 2"
        )
        return 1
    return mib or None


def check_device_count(container: ContainerSpec, count: int, system: str, problems: Problems) -> None:
    """``nvidia.com/gpu`` is what the webhook adds for kubelet: it may be there, with the same number."""
    text = container.quantity(GPU_RESOURCE)
    try:
        is_consistent = text is None or is_zero(text) or whole_number(text) == count
    except NotWholeError:
        is_consistent = False
    if not is_consistent:
        problems.add(
            f'container "{container.name}": {GPU_RESOURCE} "{text}" conflicts with {system}\'s resources, which ask '
            f"for {count}: remove {GPU_RESOURCE}, because Purser adds it"
        )


def _subject(container: ContainerSpec, resource: str, text: str) -> str:
    return f'container "{container.name}": {resource} "{text[:64]}"'


def _suggest_mib(in_bytes: Decimal | None) -> str:
    mib = int(in_bytes / MIB) if in_bytes is not None else 0
    return f": use {mib}" if 1 <= mib <= MAX_DEVICE_MEMORY_MIB else ""
