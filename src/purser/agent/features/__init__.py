"""Feature discovery on a node: its GPUs as labels, in one of three outlets.

The rules are pure (`purser.core.features`). Here the node is looked at (`looking`), and what follows is kept standing
in the outlet (`outlets`) that the agent is told (`publishing`).
"""

from purser.agent.features.publishing import FeatureLabels

__all__ = ["FeatureLabels"]
