"""Runs every stand-in over one set of informers, as kube-controller-manager and kube-scheduler would."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import replace

import aiohttp

from purser.kube.client import Client
from purser.kube.clock import Clock
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import DAEMON_SETS, NODES, PODS
from purser.lab.controllers import disruption
from purser.lab.controllers.scheduling.extender import ExtenderSettings, HttpExtender
from purser.lab.controllers.scheduling.scheduler import Scheduler
from purser.lab.controllers.workloads import daemonset, deployment, job, podgc, replicaset
from purser.operator.observing.kinds import policy_version


async def run_controllers(client: Client) -> None:
    """ReplicaSets, Deployments, DaemonSets, Jobs, disruption budgets and the pod collector, until cancelled."""
    pods, nodes = Informer(client, PODS.raw()), Informer(client, NODES.raw())
    replica_sets = Informer(client, replicaset.REPLICA_SETS)
    deployments = Informer(client, deployment.DEPLOYMENTS)
    daemon_sets = Informer(client, DAEMON_SETS)
    jobs = Informer(client, job.JOBS)
    budgets = Informer(client, replace(disruption.BUDGETS, version=await policy_version(client)))
    informers = (pods, nodes, replica_sets, deployments, daemon_sets, jobs, budgets)
    async with asyncio.TaskGroup() as group:
        for informer in informers:
            group.create_task(informer.run())
        for informer in informers:
            await informer.synced()

        def recorder(component: str) -> EventRecorder:
            made = EventRecorder(client, component, component)
            group.create_task(made.run())
            return made

        group.create_task(replicaset.run(client, replica_sets, pods, recorder("replicaset-controller")))
        group.create_task(deployment.run(client, deployments, replica_sets))
        group.create_task(daemonset.run(client, daemon_sets, pods, nodes, recorder("daemonset-controller")))
        group.create_task(job.run(client, jobs, pods, recorder("job-controller")))
        group.create_task(disruption.run(client, budgets, pods, replica_sets))
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
    pods, nodes = Informer(client, PODS.raw()), Informer(client, NODES.raw())
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        https = context or ssl.create_default_context()
        found = [HttpExtender(settings, session, https) for settings in extenders]
        scheduler = Scheduler(name, client, pods, nodes, found, clock)
        group.create_task(pods.run())
        group.create_task(nodes.run())
        await nodes.synced()
        group.create_task(scheduler.run())
