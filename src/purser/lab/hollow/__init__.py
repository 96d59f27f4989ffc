"""Hollow nodes: nodes that exist in the API alone, by the hundred, with what a kubelet writes there and nothing below.

They are for what is decided by labels, pods and readiness: rollouts, upgrades, evictions. `node` says what such a node
is, `fleet` is all their kubelets at once, `pods` what they write of pods, `gpus` their GPUs as a MIG worker sees them.
Their images are never pulled: a pod runs as soon as it is bound, unless an annotation of its node says that it fails.

Not here: devices that can be asked for their health, and everything else that `EmulatedNode` has.
"""

from purser.lab.hollow.fleet import HollowFleet
from purser.lab.hollow.node import HollowNodes, manifests

__all__ = ["HollowFleet", "HollowNodes", "manifests"]
