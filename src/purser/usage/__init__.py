"""GPU-hours: what each namespace was granted and used, out of Purser's metrics in a Prometheus.

`prometheus` asks it, `report` says what is asked and adds up, `breakdown` does so for pods and models. `over_time` has
the same as curves, `curves` those of one GPU, node or pod, `now` what is in use. Not here: the metrics
themselves, which agents and scheduler export.
"""

from purser.usage.breakdown import ModelHours, PodHours, read_model_hours, read_pod_hours, sample_step_s
from purser.usage.curves import UsageCurves, read_gpu_curves, read_node_curves, read_pod_curves
from purser.usage.now import UsedNow, read_used_now
from purser.usage.over_time import IdleGpu, UsageOverTime, read_idle, read_over_time
from purser.usage.prometheus import Prometheus, PrometheusError
from purser.usage.report import NamespaceUsage, UsageReport, read_usage

__all__ = [
    "IdleGpu",
    "ModelHours",
    "NamespaceUsage",
    "PodHours",
    "Prometheus",
    "PrometheusError",
    "UsageCurves",
    "UsageOverTime",
    "UsageReport",
    "UsedNow",
    "read_gpu_curves",
    "read_idle",
    "read_model_hours",
    "read_node_curves",
    "read_over_time",
    "read_pod_curves",
    "read_pod_hours",
    "read_usage",
    "read_used_now",
    "sample_step_s",
]
