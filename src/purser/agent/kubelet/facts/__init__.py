"""The node's kubelet: its configuration, hardware and allocations, read from its own files and published for the
scheduler.

`configfile` reads KubeletConfiguration, `machine` the hardware from sysfs as cadvisor finds it, `reading` kubelet's
state files, `assembling` makes the report of `purser.core.kubelet.report` out of it all, `watching` does so whenever a
file changes. Where a part cannot be read, only the configuration is reported, with a line in the log and a metric; the
agent keeps serving.

Not available this way: flags on kubelet's command line that differ from its configuration file (where the state
files name another policy than the file does, that part cannot be read), feature gates, drop-in configuration folders,
and on kubelets before 1.23, whose PodResources API lacks them, the NUMA nodes of other plugins' free devices.

Not here: the text of reports (`purser.core.kubelet.report`), writing it to the Node
(`purser.agent.reporting.publisher`).
"""

from purser.agent.kubelet.facts.watching import KubeletFacts

__all__ = ["KubeletFacts"]
