"""What the API server says of a pod that does not exist yet: it is asked to create the pod as a dry run, which stores
nothing."""

from typing import Any

import msgspec

from purser.adapters.manifests import ManifestPod
from purser.kube import Client
from purser.kube.errors import (
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    ServerError,
)
from purser.kube.pod_details import SCHEDULED_PODS, ScheduledPod

_MAY_NOT_CREATE = 'cannot create resource "pods"'
"""Of kube-apiserver's authorizer. An admission plugin's refusal is a 403, too."""
_UNSUPPORTED = "does not support dry run"
"""Of a webhook with side effects: kube-apiserver asks it nothing in a dry run, and refuses instead."""
_WEBHOOK_FAILED = "failed calling webhook"


class CreationAnswer(msgspec.Struct, frozen=True):
    """The API server's answer. One of the first three is set."""

    pod: ScheduledPod | None = None
    """As it would be created: with the values of LimitRanges and priority classes, and as all webhooks change it."""
    refusal: str = ""
    """Why it would not be created."""
    unknown: str = ""
    """Why the API server does not say."""
    exists: bool = False
    """There is a pod of this name, so another one like it was asked for."""


async def dry_run(client: Client, asked: ManifestPod, namespace: str) -> CreationAnswer:
    """Ask the API server to create the pod, and to store nothing."""
    metadata = asked.body["metadata"]
    generated = {key: value for key, value in metadata.items() if key != "name"}
    generated["generateName"] = f"{asked.name.removesuffix('-')}-"
    if asked.kind != "Pod" or asked.name.endswith("-"):
        return await _ask(client, {**asked.body, "metadata": generated}, namespace)
    try:
        return await _ask(client, asked.body, namespace)
    except AlreadyExistsError:
        found = await _ask(client, {**asked.body, "metadata": generated}, namespace)
        return msgspec.structs.replace(found, exists=True)


async def _ask(client: Client, body: dict[str, Any], namespace: str) -> CreationAnswer:
    """Raises `AlreadyExistsError`."""
    try:
        created = await client.create(SCHEDULED_PODS, body, namespace, dry_run=True)
    except AlreadyExistsError:
        raise
    except (BadRequestError, ForbiddenError, InvalidError, NotFoundError, ServerError) as error:
        return CreationAnswer(refusal=error.message) if _is_refusal(error) else CreationAnswer(unknown=error.message)
    except KubeError as error:
        return CreationAnswer(unknown=str(error))
    return CreationAnswer(created)


def _is_refusal(error: ApiError) -> bool:
    """Whether the creation itself would be answered like this."""
    if isinstance(error, ServerError):
        return _WEBHOOK_FAILED in error.message
    return _MAY_NOT_CREATE not in error.message and _UNSUPPORTED not in error.message
