"""Admission webhooks: which are asked, what they are sent, what their answers do (admission.k8s.io/v1).

Not read: `matchConditions` (CEL), `reinvocationPolicy: IfNeeded`, and the equivalence of versions in `matchPolicy`.

Each call has its own time limit and runs while other requests go on. Errors of a webhook follow its failure policy.
"""

import asyncio
import base64
import binascii
import ssl
import uuid
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import aiohttp
import structlog

from . import jsonio, strategies
from .cluster import ApiRequest, Cluster, Webhooks
from .errors import Obj, StatusError
from .patch import json_patch
from .resources import get_path
from .selectors import object_selector

log = structlog.get_logger("purser.lab.apiserver")
_MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"
_EXEMPT = (_MUTATING, _VALIDATING)
"""Webhooks are never asked about webhook configurations: a broken one could not be repaired."""


class WebhookCallError(Exception):
    """The webhook gave no usable answer; the failure policy decides what that means."""


async def mutate(cluster: Cluster, call: ApiRequest, operation: str, obj: Obj, old: Obj | None) -> Obj:
    """The object after every matching mutating webhook, each shown what the ones before it made."""
    for webhook in _matching(cluster, _MUTATING, call, operation, obj, old):
        answer = await _ask(cluster, webhook, call, operation, obj, old)
        if answer.get("patch"):
            obj = _apply_patch(call, obj, answer, webhook)
    return obj


async def validate(cluster: Cluster, call: ApiRequest, operation: str, obj: Obj | None, old: Obj | None) -> None:
    """Ask all matching validating webhooks at once; raises the first refusal."""
    webhooks = list(_matching(cluster, _VALIDATING, call, operation, obj, old))
    if webhooks:
        await asyncio.gather(*(_ask(cluster, webhook, call, operation, obj, old) for webhook in webhooks))


def _matching(
    cluster: Cluster, storage: str, call: ApiRequest, operation: str, obj: Obj | None, old: Obj | None
) -> Iterator[Obj]:
    configurations = cluster.store.collections[storage]
    if not len(configurations) or call.resource.storage in _EXEMPT:
        return
    for record in configurations.records():
        for webhook in record.object().get("webhooks") or ():
            if _is_applicable(cluster, webhook, call, operation, obj, old):
                yield webhook


def _is_applicable(
    cluster: Cluster, webhook: Obj, call: ApiRequest, operation: str, obj: Obj | None, old: Obj | None
) -> bool:
    if not any(_rule_matches(rule, call, operation) for rule in webhook.get("rules") or ()):
        return False
    selector = object_selector(webhook.get("objectSelector"))
    candidates = [each["metadata"].get("labels") or {} for each in (obj, old) if each]
    if not any(selector.matches(labels) for labels in candidates):
        return False
    return _namespace_selected(cluster, webhook, call, obj)


def _rule_matches(rule: Obj, call: ApiRequest, operation: str) -> bool:
    resource = call.resource
    named = f"{resource.plural}/{call.subresource}" if call.subresource else resource.plural
    scope = rule.get("scope", "*")
    return (
        (operation in rule.get("operations", ()) or "*" in rule.get("operations", ()))
        and (resource.group in rule.get("apiGroups", ()) or "*" in rule.get("apiGroups", ()))
        and (resource.version in rule.get("apiVersions", ()) or "*" in rule.get("apiVersions", ()))
        and any(_resource_matches(pattern, named) for pattern in rule.get("resources", ()))
        and scope in ("*", "Namespaced" if resource.namespaced else "Cluster")
    )


def _resource_matches(pattern: str, named: str) -> bool:
    """`pods`, `pods/binding`, `pods/*`, `*/status`, `*` (no subresources) and `*/*` (everything)."""
    plural, _, subresource = named.partition("/")
    wanted, _, wanted_subresource = pattern.partition("/")
    return wanted in ("*", plural) and (wanted_subresource in ("*", subresource) or pattern == "*/*")


def _namespace_selected(cluster: Cluster, webhook: Obj, call: ApiRequest, obj: Obj | None) -> bool:
    selector = object_selector(webhook.get("namespaceSelector"))
    if call.resource.storage == "namespaces":
        return selector.matches(((obj or {}).get("metadata") or {}).get("labels") or {})
    if not call.resource.namespaced:
        return True
    namespace = cluster.object("namespaces", "", call.namespace) or {}
    return selector.matches(get_path(namespace, "metadata.labels") or {})


async def _ask(
    cluster: Cluster, webhook: Obj, call: ApiRequest, operation: str, obj: Obj | None, old: Obj | None
) -> Obj:
    """One webhook's `response`; raises its refusal; an unusable webhook that may be ignored answers nothing."""
    if call.dry_run and webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
        raise StatusError(400, "BadRequest", f'admission webhook "{webhook["name"]}" does not support dry run')
    review = _review(call, operation, obj, old)
    try:
        answer = await _post(cluster, webhook, review)
    except WebhookCallError as error:
        if webhook.get("failurePolicy") == "Ignore":
            log.warning("Failed calling webhook, failing open", webhook=webhook["name"], error=str(error))
            return {}
        message = f'Internal error occurred: failed calling webhook "{webhook["name"]}": {error}'
        raise StatusError(500, "InternalError", message, {"causes": [{"message": message}]}) from error
    call.warnings += [str(warning) for warning in answer.get("warnings") or ()]
    if not answer.get("allowed"):
        raise _denied_error(webhook, answer)
    return answer


def _denied_error(webhook: Obj, answer: Obj) -> StatusError:
    """The webhook's own status, prefixed with its name; without an error code it counts as a bad request."""
    status = answer.get("status") or {}
    why = status.get("message") or status.get("reason")
    message = f'admission webhook "{webhook["name"]}" denied the request'
    code = int(status.get("code") or 0)
    return StatusError(
        code if code >= 400 else 400,
        str(status.get("reason") or ""),
        f"{message}: {why}" if why else f"{message} without explanation",
        status.get("details"),
    )


def _review(call: ApiRequest, operation: str, obj: Obj | None, old: Obj | None) -> Obj:
    resource = call.resource
    version = {"group": resource.group, "version": resource.version}
    kind = {**version, "kind": resource.kind}
    if call.subresource == "binding":
        kind = {"group": "", "version": "v1", "kind": "Binding"}
    where = {**version, "resource": resource.plural}
    request: Obj = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": where,
        "requestKind": kind,
        "requestResource": where,
        "operation": operation,
        "userInfo": call.user.to_json(),
        "object": obj,
        "oldObject": old,
        "dryRun": call.dry_run,
        "options": {"kind": f"{_OPTIONS[operation]}Options", "apiVersion": "meta.k8s.io/v1", **call.options},
    }
    if call.subresource:
        request["subResource"] = request["requestSubResource"] = call.subresource
    name = call.name or get_path(obj, "metadata.name")
    request |= {key: value for key, value in (("name", name), ("namespace", call.namespace)) if value}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


_OPTIONS = {"CREATE": "Create", "UPDATE": "Update", "DELETE": "Delete"}


async def _post(cluster: Cluster, webhook: Obj, review: Obj) -> Obj:
    if cluster.webhooks is None:
        raise WebhookCallError("the API server is shutting down")
    seconds = webhook.get("timeoutSeconds", 10)
    url = f"{_url(cluster.webhooks, webhook)}?timeout={seconds}s"
    try:
        async with cluster.webhooks.session.post(
            url,
            data=jsonio.encode(review),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            ssl=_tls(webhook["clientConfig"].get("caBundle", "")) if url.startswith("https:") else False,
            timeout=aiohttp.ClientTimeout(total=seconds),
        ) as response:
            return _response(await response.read(), response.status, review)
    except TimeoutError as error:
        raise WebhookCallError(f'failed to call webhook: Post "{url}": context deadline exceeded') from error
    except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
        raise WebhookCallError(f'failed to call webhook: Post "{url}": {error}') from error


def _url(webhooks: Webhooks, webhook: Obj) -> str:
    config = webhook["clientConfig"]
    if "url" in config:
        return str(config["url"])
    service = config["service"]
    base = webhooks.service_urls.get((service["namespace"], service["name"]))
    if base is None:
        raise WebhookCallError(f'failed to call webhook: service "{service["name"]}" not found')
    return base.rstrip("/") + str(service.get("path") or "/")


@lru_cache(maxsize=64)
def _tls(ca_bundle: str) -> ssl.SSLContext:
    """A context that trusts the bundle (base64 PEM) and nothing else; the machine's own roots without one."""
    try:
        return ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode() or None)
    except (ssl.SSLError, binascii.Error, UnicodeDecodeError) as error:
        raise WebhookCallError(f"unable to load root certificates: {error}") from error


def _response(body: bytes, status: int, review: Obj) -> Obj:
    if status != 200:
        raise WebhookCallError(
            f"failed to call webhook: the server answered {status}: {body[:200].decode(errors='replace')}"
        )
    try:
        answer = jsonio.decode(body)["response"]
        if answer["uid"] != review["request"]["uid"]:
            raise WebhookCallError(f"expected response.uid={review['request']['uid']}, got {answer['uid']}")
    except (ValueError, KeyError, TypeError) as error:
        raise WebhookCallError(f"received an invalid AdmissionReview: {error!r}") from error
    return dict(answer)


def _apply_patch(call: ApiRequest, obj: Obj, answer: Obj, webhook: Obj) -> Obj:
    try:
        operations: Any = jsonio.decode(base64.b64decode(answer["patch"]))
        patched = json_patch(obj, operations)
    except (ValueError, StatusError) as error:
        message = f'Internal error occurred: patch of webhook "{webhook["name"]}" cannot be applied: {error}'
        raise StatusError(500, "InternalError", message) from error
    if call.subresource == "binding":
        return patched
    normalised, _ = strategies.normalise(call.resource, patched)
    strategies.fill_defaults(call.resource, normalised)
    return normalised
