"""What a hollow kubelet writes of a pod."""

from collections.abc import Mapping
from typing import Any

from purser.lab.kubelet.pods import running_status

CRASHING_POD_RESTARTS = 12
"""A failing pod has failed for long: its first back-offs are skipped."""


def running(pod: Mapping[str, Any], now: str, restarts: int = 0) -> dict[str, Any]:
    """Every container runs and is ready."""
    return running_status(pod, now, "127.0.0.1", restarts)


def crashing_status(pod: Mapping[str, Any], now: str, restarts: int = 0) -> dict[str, Any]:
    """Its first container ends again and again."""
    name = pod["spec"]["containers"][0]["name"]
    message = f"back-off 5m0s restarting failed container={name} pod={pod['metadata']['name']}"
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    return _not_ready_status(running_status(pod, now, "127.0.0.1", restarts + CRASHING_POD_RESTARTS), state)


def restarting_status(pod: Mapping[str, Any], now: str, restarts: int) -> dict[str, Any]:
    """The machine has just started again."""
    state = {"waiting": {"reason": "ContainerCreating"}}
    return _not_ready_status(running_status(pod, now, "127.0.0.1", restarts), state)


def _not_ready_status(status: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    false = ("Ready", "ContainersReady")
    conditions = [
        {**each, "status": "False", "reason": "ContainersNotReady"} if each["type"] in false else each
        for each in status["conditions"]
    ]
    first, *others = status["containerStatuses"]
    stopped = {**first, "ready": False, "started": False, "state": state}
    return {**status, "conditions": conditions, "containerStatuses": [stopped, *others]}
