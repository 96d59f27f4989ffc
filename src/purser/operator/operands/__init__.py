"""The manifests: from a policy and what the nodes are to the objects that should be there. Pure.

One module per operand, each with ``render(wanted)``; what they are put together from is in ``parts`` and ``hashes``.
Functions build plain objects: a template language would be a second one, without types and without a debugger.

- ``paths``: where runtimes and kubelets keep their files, by distribution; ``runtimes``: which of them differ.
- ``accounts``: what the operands' accounts may do.
- ``prerequisites``: accounts, roles, RuntimeClasses; ``monitoring``: the Prometheus operator's objects.

Which node gets an operand is said by labels alone, so that a DaemonSet never changes because of a node that joins: a
new OS or kernel is a new driver DaemonSet, a new kind of runtime a new one of those that depend on it.

Not here: whether an object has to be written (``kernel``), and the writing (``acting``).
"""

from collections import OrderedDict

import msgspec
from msgspec.structs import replace

from purser.core.recent import recall
from purser.operator.model import Rendered, RenderInputs
from purser.operator.operands import (
    dcgm,
    dcgm_exporter,
    device_plugin,
    discovery,
    driver,
    gfd,
    mig_manager,
    monitoring,
    mps,
    node_status_exporter,
    prerequisites,
    toolkit,
    validator,
)
from purser.operator.operands.runtimes import as_told_apart
from purser.operator.policy import ClusterPolicy
from purser.operator.policy.spec import PolicyMeta

_ORDER = (
    prerequisites,
    discovery,
    driver,
    toolkit,
    device_plugin,
    mps,
    gfd,
    validator,
    dcgm,
    dcgm_exporter,
    node_status_exporter,
    mig_manager,
    monitoring,
)


_KEPT = 8
_recent: OrderedDict[bytes, tuple[Rendered, ...]] = OrderedDict()
"""What was rendered last, by the whole of what it was rendered from. A round renders the same as the one before it, and
rendering, with its hashes, would be half of its time."""


def render(wanted: RenderInputs) -> tuple[Rendered, ...]:
    """Everything that should be there: of enabled operands, for the given pools and kinds of runtime.

    Equal answers may be the same objects: nobody writes into them.
    """
    policy = wanted.policy
    named = PolicyMeta(name=policy.metadata.name, uid=policy.metadata.uid)
    wanted = replace(wanted, policy=ClusterPolicy(metadata=named, spec=policy.spec))  # its status changes all the time
    return recall(
        _recent,
        msgspec.json.encode(wanted),
        lambda: tuple(each for operand in _ORDER for each in operand.render(wanted)),
        _KEPT,
    )


__all__ = ["as_told_apart", "render"]
