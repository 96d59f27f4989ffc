"""The environment variables by which a container learns its share, or could give itself another one.

kubelet puts a container's own variables behind the plugin's, those of ``envFrom`` as well, and runtimes let the last
one of a name hold: what a pod's spec sets is what its processes see.
"""

from collections.abc import Iterable

import msgspec

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""NVIDIA's container toolkit adds the devices that it names; ``void`` and ``none`` hide all."""

ENFORCEMENT = "PURSER_GPU_ENFORCEMENT"
"""In the container: how its share is enforced, an `Enforcement`."""

DISABLE_CONTROL = "CUDA_DISABLE_CONTROL"
"""A container that sets it to true is not limited (HAMi's way out for monitoring tools)."""

CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"
"""HAMi-core's: ``force``, ``default``, or ``disable``, which lifts the limit of compute and leaves that of memory."""

CORE_POLICY_OFF = ("disable", "DISABLE")
"""The words as HAMi-core compares them."""


class VariableNames(msgspec.Struct, frozen=True):
    """Names of variables: some by heart, some by how they begin."""

    exact: frozenset[str]
    families: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the name is one of them. Names are case-sensitive on Linux."""
        return name in self.exact or name.startswith(self.families)

    def matches_prefix(self, prefix: str) -> bool:
        """Whether some key behind an ``envFrom``'s prefix makes one of them."""
        return any(name.startswith(prefix) for name in (*self.exact, *self.families)) or prefix.startswith(
            self.families
        )

    def within(self, names: Iterable[str]) -> list[str]:
        """Those among some names, each once, in their order."""
        return list(dict.fromkeys(name for name in names if self.has(name)))


DEVICES = VariableNames(
    frozenset(
        {
            VISIBLE_DEVICES,
            "NVIDIA_IMEX_CHANNELS",
            "NVIDIA_MIG_CONFIG_DEVICES",
            "NVIDIA_MIG_MONITOR_DEVICES",
            "NVIDIA_NVSWITCH",
        }
    )
)
"""NVIDIA's container toolkit adds devices, or rights over them, that these name; NVSwitches are shared by all GPUs of a
node, IMEX channels by those of many.

Of nvidia-container-toolkit 1.20.0, ``internal/config/image/envvars.go`` and ``internal/modifier/cdi.go``. What its
``swarm-resource`` names beside them is the administrator's.
"""

EXTRA_DEVICE_VARIABLES = VariableNames(frozenset({"NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"}))
"""For these the same version adds devices that reach the memory of any GPU of the node past the driver's limits, to
containers that have one: GDRCopy's, GPUDirect Storage's, and those of InfiniBand."""

LIMITS = VariableNames(
    frozenset(
        {
            "CUDA_DEVICE_MEMORY_LIMIT",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE",
            "CUDA_DEVICE_SM_LIMIT",
            "CUDA_OVERSUBSCRIBE",
        }
    ),
    ("CUDA_DEVICE_MEMORY_LIMIT_", "CUDA_DEVICE_SM_LIMIT_", "PURSER_GPU_"),
)
"""What the agent sets, and what HAMi-core reads in their place."""

LOADER_VARIABLES = VariableNames(frozenset({"CUDA_REDIRECT", "LD_AUDIT", "LD_PRELOAD"}))
"""Libraries that come before HAMi-core's, which /etc/ld.so.preload names, or in its place."""

MPS = VariableNames(frozenset(), ("CUDA_MPS_",))
"""Another MPS daemon, or another part of one."""
