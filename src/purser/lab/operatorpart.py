"""Purser's operator in the lab: its process as in production."""

import asyncio
from collections.abc import Callable

from purser.core.names import DEFAULT_NAMESPACE
from purser.kube.config import ClusterConfig
from purser.operator.running import run
from purser.operator.settings import OperatorSettings

OPERATOR_USER = f"system:serviceaccount:{DEFAULT_NAMESPACE}:purser-operator"
IMAGE = "purser:lab"
"""Of the operands that are Purser's own; it is never pulled."""

IDENTITY = "lab"
"""Always the same: an operator that was killed and is started again takes its own lease up at once."""


async def run_operator(
    config: ClusterConfig, stop: asyncio.Event, on_ready: Callable[[int], None], *, rounds_apart_s: float
) -> None:
    """The operator as its command runs it, until ``stop`` is set. ``on_ready`` is called with the port of its
    metrics."""
    settings = OperatorSettings(
        purser_image=IMAGE,
        identity=IDENTITY,
        metrics_address="127.0.0.1",
        metrics_port=0,
        rounds_apart_s=rounds_apart_s,
    )
    await run(settings, config, stop, on_ready)
