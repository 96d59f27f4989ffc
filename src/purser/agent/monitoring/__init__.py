"""The node's GPUs measured: sensors, memory, processes and whose they are.

Here: one measurement of a GPU (`reading`), all of them once per interval (`sampling`), who holds which device by
kubelet (`holders`), what of it is exported as Purser's metrics (`gauges`; with the rest of the
node's state: `node_state`), as DCGM exporter's (`dcgm`) and as HAMi's
(`hami`; `compatible` for both), and the audit of shares (`auditing`). `watching` puts it together.

Not here: the calls of NVML (`purser.agent.nvml`), what an owner, an account and a finding are
(`purser.core.monitoring`), GPUs' health (`purser.agent.health`).
"""

from purser.agent.monitoring.auditing import Auditor
from purser.agent.monitoring.node_state import NodeSnapshot, NodeStateCollector
from purser.agent.monitoring.watching import GpuMonitoring

__all__ = ["Auditor", "GpuMonitoring", "NodeSnapshot", "NodeStateCollector"]
