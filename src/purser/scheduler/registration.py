"""Keeps Purser's webhooks registered with the API server, and writes only when something is different."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from purser.core.names import IGNORE_WEBHOOK, WEBHOOK_LABELS
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import KubeError, NotFoundError
from purser.kube.racing import until
from purser.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Raw, Resource, untyped
from purser.scheduler.settings import ServiceTarget, UrlTarget, WebhookSettings

log = structlog.get_logger("purser.scheduler")

MUTATING_NAME = "purser-mutating"
VALIDATING_NAME = "purser-validating"

CHECK_S = 60.0
RETRY_S = 5.0

_SELF_SUBJECT_REVIEWS = untyped(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


def mutating_configuration(settings: WebhookSettings, target: ServiceTarget | UrlTarget, ca_bundle: bytes) -> Raw:
    """The MutatingWebhookConfiguration that should be there.

    ``reinvocationPolicy: IfNeeded``: a webhook that runs later may add a container that asks for devices.
    """
    rules = [_rule(["CREATE"], ["pods"])]
    webhook = _webhook("pods.mutate.purser.dev", "/mutate", rules, settings, target, ca_bundle)
    return {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": MUTATING_NAME, "labels": {"app.kubernetes.io/managed-by": "purser"}},
        "webhooks": [{**webhook, "reinvocationPolicy": "IfNeeded"}],
    }


def validating_configuration(settings: WebhookSettings, target: ServiceTarget | UrlTarget, ca_bundle: bytes) -> Raw:
    """The ValidatingWebhookConfiguration that should be there.

    A Binding's labels are whatever the one who binds writes, so they keep nobody away. It can be posted in two places.
    """
    pods, bindings = _rule(["CREATE", "UPDATE"], ["pods"]), _rule(["CREATE"], ["pods/binding", "bindings"])
    of_pods = _webhook("pods.validate.purser.dev", "/validate", [pods], settings, target, ca_bundle)
    of_bindings = _webhook("bindings.validate.purser.dev", "/validate", [bindings], settings, target, ca_bundle)
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": VALIDATING_NAME, "labels": {"app.kubernetes.io/managed-by": "purser"}},
        "webhooks": [of_pods, of_bindings | {"objectSelector": {}}],
    }


class Registration:
    """The coroutine that holds both configurations at what they should be."""

    def __init__(
        self,
        client: Client,
        settings: WebhookSettings,
        target: ServiceTarget | UrlTarget,
        ca_bundle: Callable[[], bytes],
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._target = target
        self._ca_bundle = ca_bundle
        self._clock = clock or SystemClock()
        self._wanted = asyncio.Event()
        self._done = asyncio.Event()

    def refresh(self) -> None:
        """Have it looked at now: the CA has changed."""
        self._wanted.set()

    async def done(self) -> None:
        """Return once both configurations are there."""
        await self._done.wait()

    async def register(self) -> None:
        """Make both configurations what they should be. Raises `KubeError`."""
        bundle = self._ca_bundle()
        await self._ensure(MUTATING_WEBHOOKS, mutating_configuration(self._settings, self._target, bundle))
        await self._ensure(VALIDATING_WEBHOOKS, validating_configuration(self._settings, self._target, bundle))
        self._done.set()

    async def run(self) -> None:
        """Look after them until cancelled; what fails is logged and tried again."""
        while True:
            self._wanted.clear()
            try:
                await self.register()
                pause = CHECK_S
            except KubeError as error:
                log.warning("The webhooks could not be registered", error=str(error), retry_in_s=RETRY_S)
                pause = RETRY_S
            await until(self._clock.sleep(pause), self._wanted.wait())

    async def _ensure(self, resource: Resource[Raw], wanted: Raw) -> None:
        name = wanted["metadata"]["name"]
        try:
            present: Raw = await self._client.get(resource, name)
        except NotFoundError:
            present = {}
        if not holds(present, wanted):
            await self._client.apply(resource, wanted, force=True)
            log.info("Registered a webhook", configuration=name)


def holds(present: Any, wanted: Any) -> bool:
    """Whether what is there has every field as wanted; the API server's defaults beside them do not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(present, Mapping) and all(holds(present.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(holds(here, there) for here, there in zip(present, wanted, strict=True))
        )
    return bool(present == wanted)


async def own_user(client: Client) -> str:
    """The user that this process is to the API server; empty where it does not tell (before Kubernetes 1.28)."""
    try:
        review = await client.create(_SELF_SUBJECT_REVIEWS, {"metadata": {}})
    except KubeError as error:
        log.info("The API server does not tell who this is; grants are protected by their signature", error=str(error))
        return ""
    user = (review.get("status") or {}).get("userInfo") or {}
    return str(user.get("username") or "")


def _webhook(
    name: str,
    path: str,
    rules: list[Raw],
    settings: WebhookSettings,
    target: ServiceTarget | UrlTarget,
    ca_bundle: bytes,
) -> Raw:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {**_client_config(target, path), "caBundle": base64.b64encode(ca_bundle).decode()},
        "rules": rules,
        "failurePolicy": settings.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": settings.timeout_seconds,
        "namespaceSelector": {"matchExpressions": [*_NOT_IGNORED, *_not_own_namespace(target)]},
        "objectSelector": {"matchExpressions": _NOT_IGNORED},
    }


_NOT_IGNORED = [{"key": key, "operator": "NotIn", "values": [IGNORE_WEBHOOK]} for key in WEBHOOK_LABELS]


def _not_own_namespace(target: ServiceTarget | UrlTarget) -> list[Raw]:
    """With ``failurePolicy: Fail`` Purser could not start again, were its own pods to wait for its webhook."""
    if isinstance(target, UrlTarget):
        return []
    return [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [target.namespace]}]


def _rule(operations: list[str], resources: list[str]) -> Raw:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": resources,
        "scope": "Namespaced",
    }


def _client_config(target: ServiceTarget | UrlTarget, path: str) -> Raw:
    if isinstance(target, UrlTarget):
        host = f"[{target.host}]" if ":" in target.host else target.host
        return {"url": f"https://{host}:{target.port}{path}"}
    return {"service": {"namespace": target.namespace, "name": target.name, "port": target.port, "path": path}}
