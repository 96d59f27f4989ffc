"""The node: what runs beside each kubelet.

kubelet calls the device plugin (`kubelet`); whose call it is and what the container gets follows from the pods' grants
(`allocation`). What the node has is its `inventory`, as the driver (`nvml`) and `sharing` say, and `health` keeps it
true. `reporting` publishes all that; `monitoring` measures. `run` composes the rooms, and imports between them point
downwards (docs/architecture.md). The agent decides nothing about placement: it carries out grants that the scheduler
signed, and refuses what would overcommit a device.

Not here: anything about other nodes, webhooks or scheduling (`purser.scheduler`), and the API client (`purser.kube`).
"""
