"""The Job controller, reduced: completions, parallelism and the back-off limit."""

from typing import Any

from purser.kube.client import Client
from purser.kube.clock import SystemClock, timestamp
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import Raw, untyped_resource
from purser.lab.controllers.workloads.loop import run_controller, write_status
from purser.lab.controllers.workloads.owned import OwnedPods, is_active, is_ready, owner_keys, phase

JOBS = untyped_resource("batch", "v1", "jobs", "Job")
_DEFAULT_BACKOFF_LIMIT = 6


async def run(client: Client, jobs: Informer[Raw], pods: Informer[Raw], recorder: EventRecorder) -> None:
    """Until cancelled."""
    owned = OwnedPods(client, pods, recorder)

    async def reconcile(job: Raw) -> None:
        if finish_condition(job) is not None:
            return
        spec = job["spec"]
        of_job = owned.of(job)
        succeeded = sum(phase(pod) == "Succeeded" for pod in of_job)
        failed = sum(phase(pod) == "Failed" for pod in of_job)
        active = [pod for pod in of_job if is_active(pod)]
        completions = spec.get("completions", spec.get("parallelism", 1))
        end = None
        if succeeded >= completions:
            end = _condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        elif failed > spec.get("backoffLimit", _DEFAULT_BACKOFF_LIMIT):
            end = _condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        wanted = 0 if end else min(spec.get("parallelism", 1), completions - succeeded)
        for _ in range(wanted - len(active)):
            await owned.create(JOBS, job, labels={"job-name": job["metadata"]["name"]})
        for pod in active[wanted:]:
            await owned.delete(pod)
        await write_status(client, JOBS, job, _status(job, [p for p in owned.of(job) if is_active(p)], of_job, end))

    await run_controller(jobs, reconcile, (pods, lambda pod: owner_keys(pod, "Job")))


def finish_condition(job: Raw) -> str | None:
    """``Complete`` or ``Failed``; None while it is at work."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return None


def _condition(kind: str, reason: str, message: str) -> dict[str, str]:
    now = timestamp(SystemClock().now())
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }


def _status(job: Raw, active: list[Raw], pods: list[Raw], end: dict[str, str] | None) -> dict[str, Any]:
    now = timestamp(SystemClock().now())
    status: dict[str, Any] = {
        "startTime": (job.get("status") or {}).get("startTime") or now,
        "active": len(active),
        "ready": sum(map(is_ready, active)),
        "succeeded": sum(phase(pod) == "Succeeded" for pod in pods),
        "failed": sum(phase(pod) == "Failed" for pod in pods),
    }
    if end is not None:
        status["conditions"] = [end]
        if end["type"] == "Complete":
            status["completionTime"] = now
    return status
