"""What is still to go before nothing of the operator is left, as people read it."""

from collections.abc import Iterable, Sequence

from purser.operator.model import Action, Delete, PatchNode, Raw, Snapshot
from purser.operator.names import FINALIZER
from purser.operator.wording import some


def remaining(snapshot: Snapshot, actions: Sequence[Action], held: Sequence[str]) -> list[str]:
    """One line for each sort of things, the most telling first; empty where nothing is left.

    ``actions`` are what a round has to do, ``held`` the sentences on what keeps it from doing more.
    """
    objects = [str(each.key) for each in actions if isinstance(each, Delete)]
    nodes = [each.node for each in actions if isinstance(each, PatchNode)]
    alive = snapshot.alive
    pods = [f"{pod.namespace}/{pod.name} on {pod.node}" for pod in snapshot.pods if pod.node in alive]
    lines = [*_some("held back", held), *_some("objects", objects), *_some("labels and annotations of nodes", nodes)]
    lines += _some("pods of operands", pods)
    return lines or _some("policies", map(_policy, snapshot.policies))


def _some(sort: str, names: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(names))
    if not found:
        return []
    return [f"{sort}: {some(found)}"]


def _policy(policy: Raw) -> str:
    metadata = policy["metadata"]
    others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
    why = f", kept by somebody else's finalizer {', '.join(others)}" if others else ""
    return f"ClusterPolicy {metadata['name']}{why}"
