"""What the API server asks about pods, Bindings, workloads and nodes: what Purser changes of them, and what it refuses.

- ``/mutate``: `Mutation` makes a pod that asks for devices one that Purser places (``mutation``, ``patches``).
- ``/validate``: `Validation` asks the same of what came out, holds grants fixed, and lets nodes' accounts write what is
  their own (``validation``, ``node_writes``; ``node_policies``: the same rule for API servers that evaluate CEL).
- ``/warn``: `WorkloadWarnings` tells the authors of Deployments and the like (``workload_warnings``).

All of them ask ``rules`` and ``device_rules`` of a pod and answer in the words of ``review``. The extender asks
`PLACEMENT_RULES` again, for nobody has to come past a webhook. What the API server is told to ask stands in
``configurations``, and `WebhookRegistration` keeps the CA there (``registration``).

Not here: HTTPS (``server``), and pods that were created while nobody answered (``strays``).
"""

from purser.scheduler.webhook.configurations import mutating_configuration, validating_configuration
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.node_writes import NodeWrites
from purser.scheduler.webhook.registration import WebhookRegistration, own_user
from purser.scheduler.webhook.review import ReviewError, decode_review, encode_review
from purser.scheduler.webhook.rules import PLACEMENT_RULES, first_objection
from purser.scheduler.webhook.validation import Validation
from purser.scheduler.webhook.workload_warnings import WorkloadWarnings

__all__ = [
    "PLACEMENT_RULES",
    "DeviceRules",
    "Mutation",
    "NodeWrites",
    "ReviewError",
    "Validation",
    "WebhookRegistration",
    "WorkloadWarnings",
    "decode_review",
    "encode_review",
    "first_objection",
    "mutating_configuration",
    "own_user",
    "validating_configuration",
]
