"""Keeps the CA of Purser's certificate in its webhook configurations, and says what else about them is wrong.

Those who install Purser bring the configurations (the Helm chart, or ``purser webhook manifest``). The scheduler may
read and patch these two and create none.
"""

import asyncio
import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import structlog

from purser.kube.backoff import Backoff
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import KubeError, NotFoundError
from purser.kube.racing import until
from purser.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Raw, Resource, untyped_resource
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.settings import ServiceTarget, UrlTarget, WebhookSettings
from purser.scheduler.webhook.configurations import (
    EVICTIONS_WEBHOOK,
    NODES_WEBHOOK,
    REQUIRED_WEBHOOK,
    exclude_namespace,
    mutating_configuration,
    validating_configuration,
)

log = structlog.get_logger("purser.scheduler")

CONFIGURATION_RETRY_S = 1.0
"""The first pause after a failed update or a wrong configuration; pauses grow to `CONFIGURATION_CHECK_PERIOD_S`."""

CONFIGURATION_CHECK_PERIOD_S = 60.0
"""Between two checks of configurations that are right."""

_SELF_SUBJECT_REVIEWS = untyped_resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


class WebhookRegistration:
    """The coroutine that looks after both configurations."""

    def __init__(
        self,
        client: Client,
        settings: WebhookSettings,
        target: ServiceTarget | UrlTarget,
        ca_bundle: Callable[[], bytes],
        metrics: SchedulerMetrics | None = None,
        clock: Clock | None = None,
        own_namespace: str = "",
    ) -> None:
        """``own_namespace``: where the scheduler's own objects are. Called by a URL, webhooks may leave it out, as the
        chart's do, or not."""
        self._client = client
        self._may_exclude = exclude_namespace(own_namespace) if isinstance(target, UrlTarget) else None
        self._wanted = (
            (MUTATING_WEBHOOKS, mutating_configuration(settings, target)),
            (VALIDATING_WEBHOOKS, validating_configuration(settings, target)),
        )
        self._ca_bundle = ca_bundle
        self._metrics = metrics or SchedulerMetrics()
        self._clock = clock or SystemClock()
        self._changed = asyncio.Event()
        self._done = asyncio.Event()
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """By configuration: what is not as it should be, for people; empty where all is well."""
        return dict(self._problems)

    def refresh(self) -> None:
        """Have it looked at now: the CA has changed."""
        self._changed.set()

    async def done(self) -> None:
        """Return once both configurations were looked at, and what is there has the CA."""
        await self._done.wait()

    async def register(self) -> bool:
        """Enter the CA in both configurations, and report what else is wrong with them. A failure on one is logged and
        does not affect the other. Returns whether both were checked."""
        looked_at = 0
        for resource, wanted in self._wanted:
            with self._client.failures.guard(resource, wanted):
                try:
                    await self._check_configuration(resource, wanted)
                    looked_at += 1
                except KubeError as error:
                    name = wanted["metadata"]["name"]
                    log.warning(
                        "Failed to update the CA in a webhook configuration", configuration=name, error=str(error)
                    )
        if looked_at < len(self._wanted):
            return False
        self._done.set()
        return True

    async def run(self) -> None:
        """Keep both configurations up to date until cancelled. Failures are retried."""
        backoff = Backoff(CONFIGURATION_RETRY_S, CONFIGURATION_CHECK_PERIOD_S)
        while True:
            self._changed.clear()
            if await self.register() and not self._problems:
                backoff.reset()
                pause = CONFIGURATION_CHECK_PERIOD_S
            else:
                pause = backoff.next()
            await until(self._clock.sleep(pause), self._changed.wait())

    async def _check_configuration(self, resource: Resource[Raw], wanted: Raw) -> None:
        name = wanted["metadata"]["name"]
        try:
            present = await self._client.get(resource, name)
        except NotFoundError:
            self._report(name, "missing", f"{resource.kind} {name} does not exist: {_INSTALL_ADVICE}")
            return
        own = {NODES_WEBHOOK, EVICTIONS_WEBHOOK, REQUIRED_WEBHOOK, *(each["name"] for each in wanted["webhooks"])}
        await self._set_ca(resource, present, own)
        found = list(differences(_webhooks_by_name(self._without_exclusion(present)), _webhooks_by_name(wanted)))
        self._report(
            name, "different" if found else "right", f"{resource.kind} {name}: {'; '.join(found)}: {_INSTALL_ADVICE}"
        )

    def _without_exclusion(self, present: Raw) -> Raw:
        webhooks = []
        for webhook in present.get("webhooks") or ():
            selector = webhook.get("namespaceSelector") or {}
            kept = [each for each in selector.get("matchExpressions") or () if each != self._may_exclude]
            webhooks.append(
                {**webhook, "namespaceSelector": {**selector, "matchExpressions": kept}} if kept else webhook
            )
        return {**present, "webhooks": webhooks}

    async def _set_ca(self, resource: Resource[Raw], present: Raw, own: set[str]) -> None:
        """Only into Purser's webhooks. It fails where their order was changed meanwhile."""
        bundle = base64.b64encode(self._ca_bundle()).decode()
        operations: list[Raw] = []
        for place, webhook in enumerate(present.get("webhooks") or ()):
            if webhook["name"] in own and webhook["clientConfig"].get("caBundle") != bundle:
                at = f"/webhooks/{place}"
                operations.append({"op": "test", "path": f"{at}/name", "value": webhook["name"]})
                operations.append({"op": "add", "path": f"{at}/clientConfig/caBundle", "value": bundle})
        if not operations:
            return
        name = present["metadata"]["name"]
        try:
            await self._client.patch_json(resource, name, operations)
        except NotFoundError:
            return  # removed meanwhile, which the next check reports
        log.info("Updated the CA in a webhook configuration", configuration=name)

    def _report(self, name: str, state: str, problem: str) -> None:
        self._metrics.webhook_configuration(name, state)
        if state == "right":
            if self._problems.pop(name, None):
                log.info("A webhook configuration is correct again", configuration=name)
        elif self._problems.get(name) != problem:
            self._problems[name] = problem
            log.warning("A webhook configuration is missing or incorrect", configuration=name, problem=problem)


_INSTALL_ADVICE = "install the configuration with Purser's Helm chart or with `purser webhook manifest`"


def _is_narrower(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a selector leaves out more than is wanted, or a webhook more requests."""
    return bool({"matchLabels", "matchExpressions", "matchConditions"} & present.keys() - wanted.keys())


def _webhooks_by_name(configuration: Raw) -> Raw:
    """Its webhooks, wherever in the list they stand."""
    return {f"webhook {each['name']}": each for each in configuration.get("webhooks") or ()}


def differences(present: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Where what is there lacks what is wanted; the API server's defaults beside that do not matter."""
    if isinstance(wanted, Mapping) and isinstance(present, Mapping) and not _is_narrower(present, wanted):
        for key, value in wanted.items():
            yield from differences(present.get(key), value, f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, list) and isinstance(present, list) and len(present) == len(wanted):
        for place, (here, there) in enumerate(zip(present, wanted, strict=True)):
            yield from differences(here, there, f"{path}[{place}]")
    elif present is None and wanted not in ({}, []):
        yield f"{path} is missing"
    elif (present or None) != (wanted or None):
        yield f"{path} differs from the expected value"


async def own_user(client: Client) -> str:
    """This process's user at the API server; empty where the API server does not report it (before Kubernetes 1.28)."""
    try:
        review = await client.create(_SELF_SUBJECT_REVIEWS, {"metadata": {}})
    except KubeError as error:
        log.info(
            "Failed to look up the scheduler's own user; grants are protected by their signature only",
            error=str(error),
        )
        return ""
    user = (review.get("status") or {}).get("userInfo") or {}
    return str(user.get("username") or "")
