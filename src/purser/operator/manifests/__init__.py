"""The manifests: from a policy and what the nodes are to the objects that should be there. Pure.

Entrances: `render` makes the objects; `object_actions` and `removals` (``objects``) say what to write of them.

One module per operand or pair of them, and ``agent`` for Purser's own device plugin; what they are put together from is
in ``parts``, ``mounts`` (folders, what waits for a driver, and the configuration of NVIDIA's plugin), ``driver_files``
and ``toolkit`` (where runtimes and kubelets keep their files). ``rbac`` has accounts, roles and RuntimeClasses,
``monitoring`` DCGM and the Prometheus operator's objects. Functions build plain objects: a template language would be a
second one, without types and without a debugger.

Which node gets an operand is said by labels alone, so that a DaemonSet never changes because of a node that joins: a
new OS or kernel is a new driver DaemonSet, a new kind of runtime a new one of those that depend on it.

Not here: the writing (``writing``).
"""

from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from purser.operator.manifests import (
    device_plugin,
    discovery,
    driver,
    mig_manager,
    monitoring,
    rbac,
    toolkit,
    validator,
)
from purser.operator.manifests.driver_files import config_keys
from purser.operator.manifests.mig_manager import LAYOUTS_FILE, LAYOUTS_VOLUME, default_layouts
from purser.operator.manifests.objects import (
    CONFIG_MAPS,
    MONITORS,
    OWNED_KINDS,
    RUNTIME_CLASSES,
    SERVICE_MONITORS,
    object_actions,
    projection,
    removal,
    removals,
)
from purser.operator.manifests.parts import GPU_DISCOVERY
from purser.operator.manifests.toolkit import runtime_class_key
from purser.operator.model import RenderedManifest, RenderInputs
from purser.operator.order import Operand
from purser.operator.policy import ClusterPolicy
from purser.operator.policy.spec import PolicyMeta
from purser.recent import Recent

_RENDERERS: dict[Operand, Callable[[RenderInputs], list[RenderedManifest]]] = {
    Operand.DRIVER: driver.render,
    Operand.TOOLKIT: toolkit.render,
    Operand.DEVICE_PLUGIN: device_plugin.render,
    Operand.GFD: discovery.render_gfd,
    Operand.VALIDATOR: validator.render,
    Operand.DCGM: monitoring.render_dcgm,
    Operand.DCGM_EXPORTER: monitoring.render_exporter,
    Operand.NODE_STATUS_EXPORTER: validator.render_node_status_exporter,
    Operand.MIG_MANAGER: mig_manager.render,
}
"""What each operand is made of, where it is enabled."""


_render_cache: Recent[bytes, tuple[RenderedManifest, ...]] = Recent(8)
"""What was rendered last, by the whole of what it was rendered from. A round renders the same as the one before it, and
rendering, with its hashes, would be half of its time."""


def render(wanted: RenderInputs) -> tuple[RenderedManifest, ...]:
    """All desired objects of enabled operands, for the given pools and kinds of runtime.

    Equal results may be the same objects: callers must not modify them.
    """
    policy = wanted.policy
    named = PolicyMeta(name=policy.metadata.name, uid=policy.metadata.uid)
    wanted = replace(wanted, policy=ClusterPolicy(metadata=named, spec=policy.spec))  # its status changes all the time
    return _render_cache.recall(msgspec.json.encode(wanted), lambda: tuple(_render_all(wanted)))


def _render_all(wanted: RenderInputs) -> Iterator[RenderedManifest]:
    yield from rbac.render(wanted)
    yield from discovery.render(wanted)
    for operand in wanted.policy.spec.enabled:
        yield from _RENDERERS[operand](wanted)
    yield from monitoring.render(wanted)


__all__ = [
    "CONFIG_MAPS",
    "GPU_DISCOVERY",
    "LAYOUTS_FILE",
    "LAYOUTS_VOLUME",
    "MONITORS",
    "OWNED_KINDS",
    "RUNTIME_CLASSES",
    "SERVICE_MONITORS",
    "config_keys",
    "default_layouts",
    "object_actions",
    "projection",
    "removal",
    "removals",
    "render",
    "runtime_class_key",
]
