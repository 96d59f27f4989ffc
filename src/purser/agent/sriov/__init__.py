"""Network devices and accelerators as kubelet's devices, by the configuration file of the SR-IOV network device plugin.

`sysfs` reads what the node has, `ddp` which DDP packages run on its controllers (of the kernel, by `netlink`, and of
the host's `ddptool`), `memory` keeps what can only be seen while no pod has a device, `watching` makes pools of all
that and keeps them up to date, `arbiter` answers kubelet's calls for one pool, `neighbours` knows which devices are
under the same PCIe switches as GPUs, `files` writes what CNI plugins and the container runtime read.

Not here: which device is in which pool and what a container gets (`purser.core.sriov`); the device plugin itself, and
how it registers (`purser.agent.kubelet.plugin`, `purser.agent.kubelet.registration`).
"""

from purser.agent.sriov.neighbours import GpuNeighbours
from purser.agent.sriov.watching import SriovPlugins

__all__ = ["GpuNeighbours", "SriovPlugins"]
