"""Feature discovery: facts of a node in, the labels of NVIDIA's GPU feature discovery out."""

from purser.core.features.facts import (
    LabelFacts,
    NodeSharing,
    Replication,
    sharing_of,
)
from purser.core.features.labels import labels_of
from purser.core.features.values import TIMESTAMP_LABEL, Labels, changes
from purser.core.features.words import FEATURE_LABEL_PREFIXES, FEATURE_LABELS, is_feature_label

__all__ = [
    "FEATURE_LABELS",
    "FEATURE_LABEL_PREFIXES",
    "TIMESTAMP_LABEL",
    "LabelFacts",
    "Labels",
    "NodeSharing",
    "Replication",
    "changes",
    "is_feature_label",
    "labels_of",
    "sharing_of",
]
