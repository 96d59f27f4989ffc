"""Purser's operator in the lab: its process as in production, and agents where its pods say so."""

import asyncio
from collections.abc import Callable, Mapping

from purser.core.names import DEFAULT_NAMESPACE
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.informer import Informer
from purser.kube.resources import PODS, Raw
from purser.lab.components import Component
from purser.lab.controllers.workloads.owned import is_ready
from purser.operator.names import OPERAND_LABEL
from purser.operator.order import Operand
from purser.operator.running import run
from purser.operator.settings import OperatorSettings

OPERATOR_USER = f"system:serviceaccount:{DEFAULT_NAMESPACE}:purser-operator"
IMAGE = "purser:lab"
"""Of the operands that are Purser's own; nobody pulls it."""

IDENTITY = "lab"
"""Always the same: an operator that was killed and is started again takes its own lease up at once."""


async def run_operator(
    config: ClusterConfig, stop: asyncio.Event, on_ready: Callable[[], None], *, rounds_apart_s: float
) -> None:
    """The operator as its command runs it, until ``stop`` is set."""
    settings = OperatorSettings(
        purser_image=IMAGE,
        identity=IDENTITY,
        metrics_address="127.0.0.1",
        metrics_port=0,
        rounds_apart_s=rounds_apart_s,
    )
    await run(settings, config, stop, lambda port: on_ready())


async def agents_follow(client: Client, agents: Mapping[str, Component]) -> None:
    """Run the agent of each emulated node while a pod of the device plugin runs there, until cancelled."""
    pods: Informer[Raw] = Informer(
        client, PODS.raw(), DEFAULT_NAMESPACE, label_selector=f"{OPERAND_LABEL}={Operand.DEVICE_PLUGIN}"
    )
    changed = asyncio.Event()
    pods.add_handler(lambda _: changed.set(), lambda *_: changed.set(), lambda _: changed.set())

    async def follow() -> None:
        while True:
            await changed.wait()
            changed.clear()
            there = {pod["spec"].get("nodeName") for pod in pods.store.values() if _has_agent(pod)}
            for name, agent in agents.items():
                if name in there:
                    agent.start()
                elif agent.is_running:
                    await agent.stop()

    async with asyncio.TaskGroup() as group:
        group.create_task(pods.run())
        group.create_task(follow())


def _has_agent(pod: Raw) -> bool:
    return is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
