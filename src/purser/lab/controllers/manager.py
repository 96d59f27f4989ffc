"""Runs every stand-in over one set of informers, as kube-controller-manager and kube-scheduler would."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import replace

import aiohttp

from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.policy_group import policy_version
from purser.kube.resources import DAEMON_SETS, NODES, PODS
from purser.lab.controllers import disruption
from purser.lab.controllers.scheduling.claims import CLAIMS
from purser.lab.controllers.scheduling.extender import ExtenderSettings, HttpExtender
from purser.lab.controllers.scheduling.scheduler import Scheduler
from purser.lab.controllers.workloads import cronjob, daemonset, deployment, job, podgc, replicaset, statefulset


async def run_controllers(client: Client) -> None:
    """Every controller of workloads, disruption budgets and the pod collector, until cancelled."""
    pods, nodes = Informer(client, PODS.raw()), Informer(client, NODES.raw())
    replica_sets = Informer(client, replicaset.REPLICA_SETS)
    deployments = Informer(client, deployment.DEPLOYMENTS)
    daemon_sets = Informer(client, DAEMON_SETS)
    jobs = Informer(client, job.JOBS)
    # CronJobs and budgets came to v1 with the same server.
    version = await policy_version(client)
    cron_jobs = Informer(client, replace(cronjob.CRON_JOBS, version=version))
    stateful_sets = Informer(client, statefulset.STATEFUL_SETS)
    replication_controllers = Informer(client, replicaset.REPLICATION_CONTROLLERS)
    budgets = Informer(client, replace(disruption.BUDGETS, version=version))
    informers = (
        *(pods, nodes, replica_sets, deployments, daemon_sets, jobs, budgets),
        *(cron_jobs, stateful_sets, replication_controllers),
    )
    async with asyncio.TaskGroup() as group:
        for informer in informers:
            group.create_task(informer.run())
        for informer in informers:
            await informer.synced()

        def recorder(component: str) -> EventRecorder:
            made = EventRecorder(client, component, component)
            group.create_task(made.run())
            return made

        for kind, owners in (
            (replicaset.REPLICA_SETS, replica_sets),
            (replicaset.REPLICATION_CONTROLLERS, replication_controllers),
        ):
            group.create_task(replicaset.run(client, kind, owners, pods, recorder(f"{kind.kind.lower()}-controller")))
        group.create_task(statefulset.run(client, stateful_sets, pods, recorder("statefulset-controller")))
        group.create_task(cronjob.run(client, cron_jobs, jobs, recorder("cronjob-controller"), SystemClock()))
        group.create_task(deployment.run(client, deployments, replica_sets))
        group.create_task(daemonset.run(client, daemon_sets, pods, nodes, recorder("daemonset-controller")))
        group.create_task(job.run(client, jobs, pods, recorder("job-controller")))
        group.create_task(disruption.run(client, budgets, pods, replica_sets, stateful_sets, replication_controllers))
        group.create_task(podgc.run(client, nodes, pods))


async def run_scheduler(
    client: Client,
    name: str,
    extenders: Sequence[ExtenderSettings] = (),
    *,
    context: ssl.SSLContext | None = None,
    clock: Clock | None = None,
) -> None:
    """One kube-scheduler with one profile, until cancelled. ``context`` says whom to trust behind the extenders."""
    pods, nodes, claims = (Informer(client, resource) for resource in (PODS.raw(), NODES.raw(), CLAIMS))
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        found = [HttpExtender(settings, session, context or ssl.create_default_context()) for settings in extenders]
        scheduler = Scheduler(name, client, pods, nodes, claims, found, clock)
        for informer in (pods, nodes, claims):
            group.create_task(informer.run())
        await nodes.synced()
        await claims.synced()
        group.create_task(scheduler.run())
