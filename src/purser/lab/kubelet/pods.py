"""What kubelet reads of a pod, and the status it writes: pure functions over the API's JSON."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from purser.core.kubernetes.quantities import quantity_ceil
from purser.kube.pods import TERMINAL_PHASES
from purser.lab.kubelet.runtime import container_id

Raw = Mapping[str, Any]

_KILLED_EXIT_CODE = 137
RUN_SECONDS_ANNOTATION = "purser.dev/lab-run-seconds"
"""On a pod of the lab: after how many seconds its containers exit with 0; without it they run until deleted."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container in kubelet's order."""

    name: str
    is_init: bool
    """Ends before the next one starts; a sidecar does not."""
    spec: Raw

    @property
    def limits(self) -> dict[str, int]:
        """Extended resources, which are whole numbers."""
        limits = (self.spec.get("resources") or {}).get("limits") or {}
        return {name: quantity_ceil(value) for name, value in limits.items() if "/" in name}


def containers_of(pod: Raw) -> Iterator[ContainerView]:
    """Init containers first, in the order of the spec."""
    for spec in pod["spec"].get("initContainers") or ():
        yield ContainerView(spec["name"], spec.get("restartPolicy") != "Always", spec)
    for spec in pod["spec"].get("containers") or ():
        yield ContainerView(spec["name"], False, spec)


def ephemeral_containers_of(pod: Raw) -> Iterator[ContainerView]:
    """Those that `kubectl debug` added. They hold no devices and no room, and end with the pod."""
    for spec in pod["spec"].get("ephemeralContainers") or ():
        yield ContainerView(spec["name"], False, spec)


def uid_of(pod: Raw) -> str:
    """The pod's identity."""
    return str(pod["metadata"]["uid"])


def is_finished(pod: Raw) -> bool:
    """Whether the pod will never run again."""
    return (pod.get("status") or {}).get("phase") in TERMINAL_PHASES


def is_deleted(pod: Raw) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def run_seconds(pod: Raw) -> float | None:
    """How long the pod's containers run; None: for ever. What is no number counts as for ever."""
    text = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS_ANNOTATION)
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def pod_environment(pod: Raw, spec: Raw, node: str) -> dict[str, str]:
    """What the pod's author set; of references to other objects only the usual fields of the pod are known."""
    metadata = pod["metadata"]
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": node,
    }
    found = {}
    for variable in spec.get("env") or ():
        reference = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        found[variable["name"]] = fields.get(reference, "") if reference else variable.get("value") or ""
    return found


def _condition(kind: str, is_true: bool, now: str, reason: str = "", message: str = "") -> dict[str, Any]:
    found = {"type": kind, "status": "True" if is_true else "False", "lastProbeTime": None, "lastTransitionTime": now}
    if reason:
        found |= {"reason": reason}
    if message:
        found |= {"message": message}
    return found


def _conditions(now: str, *, initialized: bool, ready: bool, reason: str = "") -> list[dict[str, Any]]:
    return [
        _condition("Initialized", initialized, now, "" if initialized else reason),
        _condition("Ready", ready, now, "" if ready else reason),
        _condition("ContainersReady", ready, now, "" if ready else reason),
        _condition("PodScheduled", True, now),
    ]


def _container_status(pod: Raw, container: ContainerView, state: dict[str, Any], restarts: int = 0) -> dict[str, Any]:
    is_running = "running" in state
    return {
        "name": container.name,
        "image": container.spec.get("image", ""),
        "imageID": "",
        "containerID": f"lab://{container_id(uid_of(pod), container.name, restarts)}" if "waiting" not in state else "",
        "lastState": {},
        "ready": is_running or (container.is_init and "terminated" in state),
        "started": is_running,
        "restartCount": restarts,
        "state": state,
    }


def _statuses(pod: Raw, states: Mapping[str, dict[str, Any]], restarts: int = 0) -> dict[str, Any]:
    init_names = [spec["name"] for spec in pod["spec"].get("initContainers") or ()]
    views = list(containers_of(pod))
    statuses = [
        _container_status(pod, view, states.get(view.name, {"waiting": {"reason": "PodInitializing"}}), restarts)
        for view in views
    ]
    found: dict[str, Any] = {"containerStatuses": [s for s in statuses if s["name"] not in init_names]}
    if init_names:
        found["initContainerStatuses"] = [s for s in statuses if s["name"] in init_names]
    return found


def ephemeral_status(pod: Raw, started: Mapping[str, str], ended: str = "") -> dict[str, Any]:
    """``started``: when each of them did. ``ended``: when the pod did; empty while it runs."""
    statuses = []
    for view in ephemeral_containers_of(pod):
        if began := started.get(view.name):
            state = _terminated_state(_KILLED_EXIT_CODE, began, ended) if ended else {"running": {"startedAt": began}}
            # Their readiness does not matter: kubelet leaves both false.
            statuses.append({**_container_status(pod, view, state), "ready": False, "started": False})
    return {"ephemeralContainerStatuses": statuses} if statuses else {}


def _terminated_state(exit_code: int, started: str, now: str) -> dict[str, Any]:
    reason = "Completed" if exit_code == 0 else "Error"
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}}


def running_status(pod: Raw, now: str, host_ip: str, restarts: int = 0) -> dict[str, Any]:
    """Every app container and sidecar runs, every other init container has ended."""
    states = {
        view.name: _terminated_state(0, now, now) if view.is_init else {"running": {"startedAt": now}}
        for view in containers_of(pod)
    }
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": host_ip,
        "podIP": host_ip,
        "conditions": _conditions(now, initialized=True, ready=True),
        **_statuses(pod, states, restarts),
    }


def waiting_status(pod: Raw, container: str, reason: str, message: str, now: str) -> dict[str, Any]:
    """One container cannot be created; those before it are as they were."""
    states: dict[str, dict[str, Any]] = {}
    for view in containers_of(pod):
        if view.name == container:
            states[view.name] = {"waiting": {"reason": reason, "message": message}}
            break
        states[view.name] = _terminated_state(0, now, now) if view.is_init else {"running": {"startedAt": now}}
    is_init = container in [spec["name"] for spec in pod["spec"].get("initContainers") or ()]
    return {
        "phase": "Pending",
        "startTime": now,
        "conditions": _conditions(now, initialized=not is_init, ready=False, reason="ContainersNotReady"),
        **_statuses(pod, states),
    }


def ended_status(pod: Raw, exit_code: int, now: str) -> dict[str, Any]:
    """Every container has ended, with this exit code."""
    started = (pod.get("status") or {}).get("startTime") or now
    states = {
        view.name: _terminated_state(0 if view.is_init else exit_code, started, now) for view in containers_of(pod)
    }
    return {
        "phase": "Succeeded" if exit_code == 0 else "Failed",
        "conditions": _conditions(now, initialized=True, ready=False, reason="PodCompleted"),
        **_statuses(pod, states),
    }


def rejected_status(reason: str, message: str, now: str) -> dict[str, Any]:
    """kubelet did not admit the pod: it stays Failed for good."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now}


def merge_first_wins(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Responses of several resources: the first to set a key wins, as in kubelet."""
    found: dict[str, str] = {}
    for part in parts:
        found = {**part, **found}
    return found
