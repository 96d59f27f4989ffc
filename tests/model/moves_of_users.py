"""What users do to pods."""

from collections.abc import Iterator

from tests.model.cluster import Move, Objects, Outcome, Size
from tests.model.parts import PodVersion, is_live


def moves_of_users(size: Size) -> Iterator[Move]:
    if size.allows("delete"):
        yield Move(("objects", "faults"), _delete, when=("faults",))
    if size.allows("replace"):
        yield Move(("objects", "faults"), _replace, when=("faults",))
    if size.allows("deface"):
        yield Move(("objects", "faults"), _deface, when=("faults",))


def _delete(objects: Objects, faults: int) -> Iterator[Outcome]:
    paid = {"faults": faults - 1}
    for pod in objects.pods:
        if is_live(pod) and pod.node:
            yield f"a user deletes {pod.name} by force", {"objects": objects.without(pod.name), **paid}


def _replace(objects: Objects, faults: int) -> Iterator[Outcome]:
    paid = {"faults": faults - 1}
    for pod in objects.pods:
        if is_live(pod) and pod.node:
            number = int(pod.uid.partition(".")[2]) + 1
            again = PodVersion(pod.name, f"{pod.name}.{number}", grant=pod.grant)
            text = f"a user replaces {pod.name} by one that carries its annotations"
            yield text, {"objects": objects.put(again), **paid}


def _deface(objects: Objects, faults: int) -> Iterator[Outcome]:
    paid = {"faults": faults - 1}
    for pod in objects.pods:
        if is_live(pod) and pod.grant is not None and pod.node:
            yield f"a user removes the grant of {pod.name}", {"objects": objects.put(pod._replace(grant=None)), **paid}
            for other in objects.pods:
                if other.grant is not None and other.grant != pod.grant:
                    swapped = objects.put(pod._replace(grant=other.grant))
                    yield f"a user gives {pod.name} the annotations of {other.name}", {"objects": swapped, **paid}
