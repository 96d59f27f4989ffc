"""Which containers of a pod run at the same time, and so what they take together.

Each init container runs alone but for the sidecars that started before it; then all sidecars and apps run together.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from purser.core.pod.manifest import ContainerKind

Amount = TypeVar("Amount")


class HasKind(Protocol):
    """A part of a pod that stands for one container."""

    @property
    def kind(self) -> ContainerKind:
        """When it runs."""
        ...


Part = TypeVar("Part", bound=HasKind)


def phases(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """The sets of containers that run at the same time, in a pod's life."""
    sidecars: tuple[Part, ...] = ()
    apps: tuple[Part, ...] = ()
    for part in parts:
        if part.kind is ContainerKind.INIT:
            yield (*sidecars, part)
        elif part.kind is ContainerKind.SIDECAR:
            sidecars = (*sidecars, part)
        else:
            apps = (*apps, part)
    yield (*sidecars, *apps)


def largest(
    asked: Iterable[tuple[ContainerKind, Amount]],
    nothing: Amount,
    add: Callable[[Amount, Amount], Amount],
    larger: Callable[[Amount, Amount], Amount],
) -> Amount:
    """The most that containers take together in any phase, in each dimension (PodRequests in k8s.io/component-helpers).

    In time linear in the containers, whose number the pod's creator chooses. ``larger`` takes the
    larger of two amounts in each dimension.
    """
    sidecars = apps = peak = nothing
    for kind, amount in asked:
        if kind is ContainerKind.INIT:
            peak = larger(peak, add(sidecars, amount))
        elif kind is ContainerKind.SIDECAR:
            sidecars = add(sidecars, amount)
        else:
            apps = add(apps, amount)
    return larger(peak, add(sidecars, apps))
