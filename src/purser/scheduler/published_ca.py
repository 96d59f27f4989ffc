"""Keeps the CA of Purser's certificate in a ConfigMap, where clients of the read API find it."""

import asyncio
from collections.abc import Callable

import structlog

from purser.core.names import CA_CONFIGMAP, CA_CONFIGMAP_FIELD
from purser.kube.backoff import Backoff
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import KubeError, NotFoundError
from purser.kube.racing import until
from purser.kube.resources import CONFIG_MAPS

RETRY_S = 1.0
"""The first pause after a failure; pauses grow to `CHECK_PERIOD_S`."""
CHECK_PERIOD_S = 60.0
"""Between two checks of a ConfigMap that is right."""

log = structlog.get_logger("purser.scheduler")


class PublishedCa:
    """The coroutine that writes it. ``ca_bundle``: PEM."""

    def __init__(
        self, client: Client, namespace: str, ca_bundle: Callable[[], bytes], clock: Clock | None = None
    ) -> None:
        self._client, self._namespace, self._ca_bundle = client, namespace, ca_bundle
        self._clock = clock or SystemClock()
        self._changed = asyncio.Event()

    def refresh(self) -> None:
        """Have it checked now: the CA has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Keep it up to date until cancelled. Failures are retried."""
        backoff = Backoff(RETRY_S, CHECK_PERIOD_S)
        while True:
            self._changed.clear()
            try:
                await self.publish()
                backoff.reset()
                pause_s = CHECK_PERIOD_S
            except KubeError as error:
                pause_s = backoff.next()
                log.warning("Failed to publish the CA, retrying", configmap=CA_CONFIGMAP, error=str(error))
            await until(self._clock.sleep(pause_s), self._changed.wait())

    async def publish(self) -> None:
        """Write the CA where it is not there yet. Raises `KubeError`, also after a concurrent write."""
        data = {CA_CONFIGMAP_FIELD: self._ca_bundle().decode()}
        try:
            published = await self._client.get(CONFIG_MAPS, CA_CONFIGMAP, self._namespace)
        except NotFoundError:
            body = {"metadata": {"name": CA_CONFIGMAP, "namespace": self._namespace}, "data": data}
            await self._client.create(CONFIG_MAPS, body)
            return
        if published.data.get(CA_CONFIGMAP_FIELD) != data[CA_CONFIGMAP_FIELD]:
            version = published.metadata.resource_version
            patch = {"metadata": {"resourceVersion": version}, "data": data}
            await self._client.patch_merge(CONFIG_MAPS, CA_CONFIGMAP, patch, self._namespace)
