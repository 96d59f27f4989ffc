"""What would become of a pod if it was created now, without asking the API server."""

from collections.abc import Mapping
from typing import Any

import msgspec

from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.patches import patched
from purser.scheduler.webhook.review import AdmissionRequest, Decision, GroupVersionResource

_PODS = GroupVersionResource("", "v1", "pods")


def mutate_pod(pod: Mapping[str, Any], namespace: str, webhook: Mutation) -> tuple[dict[str, Any], Decision]:
    """The pod as the webhook changes it, unchanged where it is refused, and the webhook's decision. Raises
    `ReviewError` for a pod that cannot be read."""
    body = msgspec.Raw(msgspec.json.encode(pod))
    request = AdmissionRequest("", operation="CREATE", namespace=namespace, resource=_PODS, object=body)
    decision = webhook.review(request)
    return patched(pod, decision.patch), decision
