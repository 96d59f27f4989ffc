"""A cluster on a laptop: one process, no root, no Docker, no network.

Here: an API server (`apiserver`), stand-ins for kube-scheduler and the workload controllers (`controllers`), emulated
kubelets (`kubelet`), a simulated NVIDIA driver (`driver`), what composes them with Purser's own scheduler and agents
(`cluster`, `nodes`, `components`, `settings`), faults asked for with kubectl (`faults`), scenario files (`scenario`),
and the first screen (`screen`).

Not here: anything that Purser's own code could lean on. The rooms below do not know that there is a lab, and the
stand-ins do not know that there is a Purser.
"""
