"""Follows kinds whose definitions may be installed, or removed, while the operator runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Never

import structlog

from purser.kube import Client, Clock, Informer, KubeError, Resource
from purser.kube.racing import until
from purser.operator.observing.kinds import is_served

log = structlog.get_logger("purser.operator")

RETRY_S = 1.0
LOOK_S = 60.0
"""How often it is looked whether a definition is installed: one small request, whatever there is of the kind."""


async def look_again_and_again(look: Callable[[], Awaitable[None]], clock: Clock, looked: asyncio.Event) -> Never:
    """Call ``look`` now and then; ``looked`` is set once it succeeded. It may raise `KubeError`."""
    while True:
        try:
            await look()
            looked.set()
        except KubeError as error:
            log.warning("It cannot be told what is installed, and is looked for again", error=str(error))
        await clock.sleep(LOOK_S if looked.is_set() else RETRY_S)


async def follow_if_served(
    client: Client, informer: Informer[Any], clock: Clock, note: Callable[[bool], None]
) -> Never:
    """Follow a kind from when it is served until it is not; ``note`` is told each time it was looked, once the
    kind was listed."""
    running: asyncio.Task[Never] | None = None
    try:
        while True:
            served = await _look(client, informer.resource, otherwise=running is not None)
            if served and running is None:
                running = asyncio.create_task(informer.run())
            elif not served and running is not None:
                await _end(running)
                running = None
            if served and not informer.health.synced:
                await until(informer.synced(), clock.sleep(LOOK_S))
            if informer.health.synced or not served:
                note(served)
                await clock.sleep(LOOK_S)
    finally:
        if running is not None:
            await _end(running)


async def _look(client: Client, resource: Resource[Any], otherwise: bool) -> bool:
    try:
        return await is_served(client, resource)
    except KubeError as error:
        log.warning("It cannot be told whether a kind is served", resource=resource.plural, error=str(error))
        return otherwise


async def _end(task: asyncio.Task[Never]) -> None:
    task.cancel()
    await asyncio.wait({task})
