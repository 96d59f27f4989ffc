"""What is measured of a node's GPUs, and whose it is. Pure.

`dcgm` and `hami` have the metrics of NVIDIA's DCGM exporter and of HAMi by name, `cgroups` finds the pod and container
of a process, `accounts` adds processes up by their owners, `audit` compares that with grants.

Not here: who asks the driver (`purser.agent.nvml`), and when (`purser.agent.monitoring`).
"""
