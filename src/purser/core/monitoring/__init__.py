"""What is measured of a node's GPUs, and whose it is. Pure; not in use yet.

`dcgm` has the metrics of NVIDIA's DCGM exporter by name, `cgroups` tells the pod and container of a process.

Not here: who asks the driver (`purser.agent.nvml`), and when (`purser.agent`).
"""
