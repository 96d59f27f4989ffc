"""A node of another vendor's devices, and pods that ask for them, for the tables of how each vendor shares its own."""

from collections.abc import Mapping, Sequence

from purser.core.dialects import grant_annotations, parse
from purser.core.fleet import Fleet
from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.model import ContainerKind, Device, Grant, NodeInventory, PodRequest
from purser.core.placement import Evaluator, Placement, Reason
from purser.core.placement.granted import to_grant
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.policy.settings import DEFAULT_POLICIES


def vendor_pod(
    family: str,
    name: str,
    *asked: Mapping[str, object],
    kinds: Sequence[ContainerKind] = (),
    annotations: Mapping[str, str] | None = None,
) -> PodManifest:
    """``asked``: the limits of each container, which are of the app unless ``kinds`` says otherwise."""
    containers = tuple(
        ContainerSpec(f"c{at}", kind, limits={word: str(amount) for word, amount in limits.items()})
        for at, (limits, kind) in enumerate(zip(asked, kinds or (ContainerKind.APP,) * len(asked), strict=True))
    )
    return PodManifest(name, "team", name, dict(annotations or {}), containers, families=frozenset({family}))


class World:
    """The node as scheduler and ledger have it."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.inventory = NodeInventory("n", tuple(devices))
        self.fleet = Fleet()
        self.fleet.set_inventory(self.inventory)
        self.evaluator = Evaluator(self.fleet, DEFAULT_POLICIES)

    def grant(self, request: PodRequest, left: QuotaLimits = UNLIMITED) -> Grant | set[Reason]:
        """What a pod that was placed holds from now on; else the reasons why it was not."""
        fits = self.evaluator.evaluate(request, ["n"], left)
        found = self.evaluator.place("n", request, left)
        assert bool(fits.fits) is isinstance(found, Placement)
        if not isinstance(found, Placement):
            return {reason for reason, _ in found.counts}
        grant = to_grant(found, request, self.inventory)
        self.fleet.ledger.reserve(grant)
        return grant

    def put(self, spec: PodManifest, left: QuotaLimits = UNLIMITED) -> dict[str, str] | set[Reason]:
        """The same, with the pod's annotations in place of its grant."""
        request = parse(spec)
        assert request is not None
        grant = self.grant(request, left)
        if not isinstance(grant, Grant):
            return grant
        return grant_annotations(spec, request.systems, grant, self.inventory, 5)
