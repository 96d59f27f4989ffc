"""Feature discovery on a node: its GPUs as labels, in one of three outlets.

The rules are pure (`purser.core.features`). Here the node is read (`looking`), and its labels are kept in the
configured outlet (`outlets`, `publishing`).
"""

from purser.agent.features.publishing import FeatureLabels

__all__ = ["FeatureLabels"]
