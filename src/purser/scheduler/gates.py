"""A pod's scheduling gates, which kube-scheduler waits for before it tries the pod."""

from collections.abc import Sequence

from purser.core.decoding import brief
from purser.kube.objects import Pod


def gate_names(pod: Pod) -> str:
    """With commas between; empty: it has none."""
    gates: Sequence[object] = pod.spec.scheduling_gates if isinstance(pod.spec.scheduling_gates, list) else ()
    return brief(", ".join(str(each.get("name", "")) for each in gates if isinstance(each, dict)))


def gated_message(pod: Pod) -> str:
    """Why a pod with gates waits."""
    return f"its scheduling gates have not been removed: {gate_names(pod)}"
