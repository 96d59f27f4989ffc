"""The node: what runs beside each kubelet.

Here: the device plugin that kubelet talks to, the inventory it publishes, the driver behind it (`nvml`), the health of
devices, the node's part of the book, and metrics. The agent decides nothing about placement: it carries out grants that
the scheduler signed, and refuses what would overcommit a device.

Not here: anything about other nodes, webhooks or scheduling (`purser.scheduler`), and the API client (`purser.kube`).
"""
