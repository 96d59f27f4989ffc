"""A real Kubernetes on one Debian machine: etcd, control plane, containerd and kubelet as plain processes.

What is here: how the binaries are built and found, what containerd and kubelet need, and `RealCluster`, which puts
them together with the control plane of `purser.lab.controlplane`. What is not here: anything of Purser. Tests and
fixtures that run Purser's own processes against this cluster stand beside this package, in tests/cluster.
"""

from purser.lab.controlplane.credentials import TokenUser

from .binaries import Binaries, MissingBinariesError
from .cluster import RealCluster
from .manifests import BUSYBOX_IMAGE, busybox_pod

__all__ = ["BUSYBOX_IMAGE", "Binaries", "MissingBinariesError", "RealCluster", "TokenUser", "busybox_pod"]
