"""What the managers raise. A refused pod is not an error: it is a value (`purser.core.kubelet.asks.Rejection`)."""

UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
"""``reason`` in the status of a pod that a manager refused for an error."""


class KubeletStartError(Exception):
    """kubelet would not start with this configuration, machine or state file; the message is kubelet's own."""


class CheckpointError(ValueError):
    """A state file that kubelet would not read; the message says why."""
