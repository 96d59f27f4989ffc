"""The ClusterPolicy as types: what users may write, its defaults, and its status.

Sections carry the names of nvidia.com/v1's ClusterPolicy. A docstring below a field is its description in the CRD, its
default the CRD's default: both are written once, here.

- ``spec``: the whole, and its status; ``sections``, ``driver``, ``fields``: its parts, and which images operands run.
- ``decoding``: reads and checks one, and says which of several counts; ``crd``: the CustomResourceDefinition.
- ``importing``: makes one of NVIDIA's.

Not here: what a policy leads to (``deciding``, ``manifests``).
"""

from purser.operator.policy.decoding import PolicyError, decode
from purser.operator.policy.spec import CLUSTER_POLICIES, ClusterPolicy, ClusterPolicySpec, ClusterPolicyStatus

__all__ = ["CLUSTER_POLICIES", "ClusterPolicy", "ClusterPolicySpec", "ClusterPolicyStatus", "PolicyError", "decode"]
