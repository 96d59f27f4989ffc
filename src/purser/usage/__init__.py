"""GPU-hours: what each namespace was granted and used, out of Purser's metrics in a Prometheus.

`prometheus` asks it, `report` says what is asked and adds up, `over_time` has the same as curves. Not here: the metrics
themselves, which agents and scheduler export.
"""

from purser.usage.over_time import IdleGpu, UsageOverTime, read_idle, read_over_time
from purser.usage.prometheus import Prometheus, PrometheusError
from purser.usage.report import NamespaceUsage, UsageReport, read_usage

__all__ = [
    "IdleGpu",
    "NamespaceUsage",
    "Prometheus",
    "PrometheusError",
    "UsageOverTime",
    "UsageReport",
    "read_idle",
    "read_over_time",
    "read_usage",
]
