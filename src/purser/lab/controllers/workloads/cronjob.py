"""The CronJob controller, reduced: a Job at each turn, as its concurrency policy says, and only so many kept."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from purser.core.kubernetes.times import parsed
from purser.kube.client import Client
from purser.kube.clock import Clock, timestamp
from purser.kube.errors import AlreadyExistsError, ApiError, ConflictError, KubeError, NotFoundError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.racing import until
from purser.kube.resources import Raw, Resource, ref_of, untyped_resource
from purser.lab import cron
from purser.lab.controllers.workloads.job import JOBS, finish_condition
from purser.lab.controllers.workloads.owned import owner_reference, owner_uid

CRON_JOBS = untyped_resource("batch", "v1", "cronjobs", "CronJob")
"""As API servers since 1.21 serve them."""

_MINUTE = timedelta(minutes=1)
_MAX_MISSED_MINUTES = 10_000
"""Minutes that are looked back for a turn that was missed: a week."""
_FORBIDDEN_MESSAGE = "Not starting job because prior execution is running and concurrency policy is Forbid"

log = structlog.get_logger("purser.lab.cronjobs")


async def run(
    client: Client, cron_jobs: Informer[Raw], jobs: Informer[Raw], recorder: EventRecorder, clock: Clock
) -> None:
    """Until cancelled."""
    turns = _JobStarter(client, cron_jobs.resource, recorder, clock)
    changed = asyncio.Event()

    def look(*_: Raw) -> None:
        changed.set()

    for informer in (cron_jobs, jobs):
        informer.add_handler(on_add=look, on_update=look, on_delete=look)
    while True:
        changed.clear()
        for cron_job in list(cron_jobs.store.values()):
            try:
                await turns.reconcile(cron_job, jobs.store.values())
            except KubeError as error:
                log.warning("Reconciling a CronJob failed", cron_job=cron_job["metadata"]["name"], error=str(error))
            except Exception:
                log.exception("Reconciling a CronJob failed", cron_job=cron_job["metadata"]["name"])
        await until(clock.sleep(60 - clock.now().timestamp() % 60), changed.wait())


class _JobStarter:
    """Starts the Jobs of all CronJobs, none twice while the informers lag behind."""

    def __init__(self, client: Client, kind: Resource[Raw], recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._kind = kind
        self._recorder = recorder
        self._clock = clock
        self._taken: dict[str, str] = {}
        """By uid: the last turn that was taken."""

    async def reconcile(self, cron_job: Raw, jobs: Iterable[Raw]) -> None:
        """Take the turn that is due, if any, remove old Jobs and write the status."""
        metadata = cron_job["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        known = (cron_job.get("status") or {}).get("lastScheduleTime") or ""
        taken = max(known, self._taken.get(metadata["uid"], ""))
        own = [
            job for job in jobs if owner_uid(job) == metadata["uid"] and not job["metadata"].get("deletionTimestamp")
        ]
        taken = await self._take(cron_job, taken, [job for job in own if finish_condition(job) is None]) or taken
        self._taken[metadata["uid"]] = taken
        for job in _surplus_jobs(cron_job["spec"], own):
            await self._delete(job)
        status = _status(cron_job, own, taken)
        if {key: (cron_job.get("status") or {}).get(key) for key in status} != status:
            patch = {"status": status}
            await self._client.patch_merge(
                self._kind, metadata["name"], patch, metadata["namespace"], subresource="status"
            )

    async def _take(self, cron_job: Raw, taken: str, active: list[Raw]) -> str:
        """Start the Job whose turn it is: the turn that is dealt with, empty where none is."""
        spec = cron_job["spec"]
        if spec.get("suspend"):
            return ""
        now = self._clock.now()
        try:
            due = latest_turn(spec, taken or cron_job["metadata"]["creationTimestamp"], now)
        except (ValueError, KeyError, OSError) as error:
            self._emit_event(
                cron_job, "UnparseableSchedule", f'unparseable schedule: "{spec.get("schedule")}" : {error}', "Warning"
            )
            return ""
        if due is None:
            return ""
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and (now - due).total_seconds() > deadline:
            self._emit_event(
                cron_job, "MissSchedule", f"Missed scheduled time to start a job: {timestamp(due)}", "Warning"
            )
            return timestamp(due)
        policy = spec.get("concurrencyPolicy", "Allow")
        if active and policy == "Forbid":
            self._emit_event(cron_job, "JobAlreadyActive", _FORBIDDEN_MESSAGE)
            return ""
        for job in active if policy == "Replace" else ():
            await self._delete(job)
            self._emit_event(cron_job, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")
        await self._create(cron_job, due)
        return timestamp(due)

    async def _create(self, cron_job: Raw, due: datetime) -> None:
        body = _job(self._kind, cron_job, due)
        try:
            await self._client.create(JOBS, body, body["metadata"]["namespace"])
        except AlreadyExistsError:
            return  # Made before this process began.
        except ApiError as error:
            self._emit_event(cron_job, "FailedCreate", f"Error creating job: {error}", "Warning")
            raise
        self._emit_event(cron_job, "SuccessfulCreate", f"Created job {body['metadata']['name']}")

    async def _delete(self, job: Raw) -> None:
        metadata = job["metadata"]
        try:
            await self._client.delete(
                JOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"], propagation="Background"
            )
        except (NotFoundError, ConflictError):
            return

    def _emit_event(self, cron_job: Raw, reason: str, message: str, kind: str = "Normal") -> None:
        self._recorder.event(ref_of(self._kind, cron_job), reason, message, type=kind)


def latest_turn(spec: Raw, since: str, now: datetime) -> datetime | None:
    """The last turn after a time. Raises ValueError, KeyError or OSError for a schedule or a time zone that is none."""
    schedule, zone = cron.parse(spec["schedule"]), _zone(spec.get("timeZone"))
    taken = datetime.fromtimestamp(parsed(since) or now.timestamp(), UTC)
    moment = now.astimezone(UTC).replace(second=0, microsecond=0)
    for _ in range(_MAX_MISSED_MINUTES):
        if moment <= taken:
            return None
        if schedule.has(moment.astimezone(zone)):
            return moment
        moment -= _MINUTE
    return None


def _zone(name: str | None) -> tzinfo:
    return ZoneInfo(name) if name else UTC


def _job(kind: Resource[Raw], cron_job: Raw, due: datetime) -> Raw:
    metadata, template = cron_job["metadata"], cron_job["spec"]["jobTemplate"]
    own = template.get("metadata") or {}
    at = {"batch.kubernetes.io/cronjob-scheduled-timestamp": timestamp(due)}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": f"{metadata['name']}-{int(due.timestamp()) // 60}",
            "namespace": metadata["namespace"],
            "labels": own.get("labels") or {},
            "annotations": {**(own.get("annotations") or {}), **at},
            "ownerReferences": [owner_reference(kind, cron_job)],
        },
        "spec": template.get("spec") or {},
    }


def _surplus_jobs(spec: Raw, jobs: list[Raw]) -> Iterable[Raw]:
    """Jobs that ended, beyond those that are to be kept, oldest first."""
    for end, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        ended = sorted((job for job in jobs if finish_condition(job) == end), key=_age)
        yield from ended[: max(0, len(ended) - int(spec.get(limit, 3)))]


def _age(job: Raw) -> str:
    return str(job["metadata"]["creationTimestamp"])


def _status(cron_job: Raw, jobs: list[Raw], taken: str) -> dict[str, Any]:
    known = cron_job.get("status") or {}
    ends = [(job.get("status") or {}).get("completionTime") for job in jobs if finish_condition(job) == "Complete"]
    ends.append(known.get("lastSuccessfulTime"))
    return {
        "active": [_reference(job) for job in jobs if finish_condition(job) is None],
        "lastScheduleTime": taken or None,
        "lastSuccessfulTime": max(filter(None, ends), default=None),
    }


def _reference(job: Raw) -> dict[str, str]:
    identity = {key: job["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, **identity}
