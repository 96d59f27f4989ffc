"""The ClusterPolicy as types: what users may write, its defaults, and its status.

Sections carry the names of nvidia.com/v1's ClusterPolicy. A docstring below a field is its description in the CRD, its
default the CRD's default: both are written once, here.

Not here: what a policy leads to (``kernel``, ``operands``), and how one of nvidia.com/v1 is read (``importing``).
"""

from purser.operator.policy.decoding import PolicyError, decode
from purser.operator.policy.spec import CLUSTER_POLICIES, ClusterPolicy, ClusterPolicySpec
from purser.operator.policy.status import ClusterPolicyStatus

__all__ = ["CLUSTER_POLICIES", "ClusterPolicy", "ClusterPolicySpec", "ClusterPolicyStatus", "PolicyError", "decode"]
