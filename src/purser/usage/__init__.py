"""GPU-hours: what each namespace was granted and used, out of Purser's metrics in a Prometheus.

`prometheus` asks it, `report` says what is asked and adds up. Not here: the metrics themselves, which agents and
scheduler export.
"""

from purser.usage.prometheus import Prometheus, PrometheusError
from purser.usage.report import NamespaceUsage, UsageReport, read_usage

__all__ = ["NamespaceUsage", "Prometheus", "PrometheusError", "UsageReport", "read_usage"]
