"""What the node's kubelet is, has and has given away, read from its own files and published for the scheduler.

`configfile` reads KubeletConfiguration, `machine` the hardware from sysfs as cadvisor finds it, `reading` kubelet's
state files, `assembling` makes the report of `purser.core.kubelet.report` out of it all, `watching` does so whenever a
file changes. Where a part cannot be read the configuration is all that is told, with a line in the log and a metric;
the agent serves on.

What cannot be known this way: flags on kubelet's command line that differ from its configuration file (where the state
files name another policy than the file does, that part cannot be read), feature gates, drop-in configuration folders,
and on kubelets before 1.23, whose PodResources API does not tell, the NUMA nodes of other plugins' free devices.

Not here: the text of reports (`purser.core.kubelet.report`), writing it to the Node (`purser.agent.publisher`).
"""

from purser.agent.kubeletfacts.watching import KubeletFacts

__all__ = ["KubeletFacts"]
