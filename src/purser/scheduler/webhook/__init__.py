"""The admission webhooks for pods, Bindings, workloads and nodes: what Purser changes in them, and what it refuses.

- ``/mutate``: `Mutation` turns a pod that requests devices into one that Purser places (``mutation``, ``patches``).
- ``/validate``: `Validation` checks the result, keeps grants immutable, and restricts nodes' accounts to their own
  objects (``validation``, ``node_writes``; ``node_policies``: the same rule for API servers that evaluate CEL).
- ``/warn``: `WorkloadWarnings` warns the authors of Deployments and the like (``workload_warnings``).

- `mutate_pod`: what ``/mutate`` would make of a pod, for those who only ask (``new_pods``).

All of them apply ``rules`` and ``device_rules`` and answer with ``review``. The extender checks `PLACEMENT_RULES`
again, because webhooks can be bypassed. ``configurations`` has the webhook configurations, and `WebhookRegistration`
keeps their CA up to date (``registration``). `WebhookProbe` finds out whether the API server calls them (``probe``).

Not here: HTTPS (``server``), and pods that were created while no replica answered (``missed_pods``).
"""

from purser.scheduler.webhook.configurations import mutating_configuration, validating_configuration
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.new_pods import mutate_pod
from purser.scheduler.webhook.node_writes import NodeWrites
from purser.scheduler.webhook.probe import PROBE_PERIOD_S, WebhookProbe
from purser.scheduler.webhook.registration import WebhookRegistration, own_user
from purser.scheduler.webhook.review import ReviewError, decode_review, encode_review
from purser.scheduler.webhook.rules import PLACEMENT_RULES, check_units, first_objection
from purser.scheduler.webhook.validation import Validation
from purser.scheduler.webhook.workload_warnings import WorkloadWarnings

__all__ = [
    "PLACEMENT_RULES",
    "PROBE_PERIOD_S",
    "DeviceRules",
    "Mutation",
    "NodeWrites",
    "ReviewError",
    "Validation",
    "WebhookProbe",
    "WebhookRegistration",
    "WorkloadWarnings",
    "check_units",
    "decode_review",
    "encode_review",
    "first_objection",
    "mutate_pod",
    "mutating_configuration",
    "own_user",
    "validating_configuration",
]
