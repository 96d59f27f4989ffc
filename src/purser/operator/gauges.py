"""Gauges that users of NVIDIA's operator know: their names, and what their values mean."""

from enum import Enum, StrEnum

PREFIX = "gpu_operator_"


class Gauge(StrEnum):
    """A gauge's name, without its prefix."""

    GPU_NODES = "gpu_nodes_total"
    RECONCILIATION = "reconciliation_status"
    LAST_SUCCESS = "reconciliation_last_success_ts_seconds"
    HAS_NFD_LABELS = "reconciliation_has_nfd_labels"
    AUTO_UPGRADE = "driver_auto_upgrade_enabled"
    UPGRADES_IN_PROGRESS = "nodes_upgrades_in_progress"
    UPGRADES_DONE = "nodes_upgrades_done"
    UPGRADES_FAILED = "nodes_upgrades_failed"
    UPGRADES_AVAILABLE = "nodes_upgrades_available"
    UPGRADES_PENDING = "nodes_upgrades_pending"


HELP = {
    Gauge.GPU_NODES: "Nodes with a GPU.",
    Gauge.RECONCILIATION: "1: everything is ready; 0: not yet; -1: no ClusterPolicy to act on; -2: a round failed.",
    Gauge.LAST_SUCCESS: "When a round last found everything ready.",
    Gauge.HAS_NFD_LABELS: "Whether a node carries labels of node-feature-discovery.",
    Gauge.AUTO_UPGRADE: "Whether drivers are upgraded without being asked.",
    Gauge.UPGRADES_IN_PROGRESS: "Nodes whose driver is being upgraded.",
    Gauge.UPGRADES_DONE: "Nodes with the driver that they should have.",
    Gauge.UPGRADES_FAILED: "Nodes whose driver upgrade failed.",
    Gauge.UPGRADES_AVAILABLE: "Free slots: how many more nodes may have their driver upgraded now.",
    Gauge.UPGRADES_PENDING: "Nodes that wait for their driver upgrade.",
}


class Reconciliation(float, Enum):
    """Values of ``reconciliation_status``."""

    READY = 1.0
    NOT_READY = 0.0
    NO_POLICY = -1.0
    FAILED = -2.0
