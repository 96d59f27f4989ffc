"""The webhook configurations that Purser needs: what the API server asks its webhooks about, and what not.

The one place that says so. The Helm chart ships what ``scripts/generate_chart.py`` writes from here,
``purser webhook manifest`` prints it, and the scheduler compares it with what is there.
"""

from collections.abc import Sequence

from purser.core.device.resources import MIG_PREFIX
from purser.core.names import GPU_RESOURCE, IGNORE_WEBHOOK, WEBHOOK_LABELS
from purser.core.node.amounts import AMOUNTS
from purser.kube.objects import DEFAULT_SCHEDULER
from purser.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Raw
from purser.scheduler.settings import ServiceTarget, UrlTarget, WebhookSettings
from purser.scheduler.webhook.workload_warnings import WORKLOADS

MUTATING_NAME = "purser-mutating"
VALIDATING_NAME = "purser-validating"
NODES_WEBHOOK = "nodes.validate.purser.dev"
"""In the validating configuration where the API server has no policies of its own."""
EVICTIONS_WEBHOOK = "evictions.validate.purser.dev"
"""In the validating configuration where webhooks know conditions: no policy can look a pod's node up."""
REQUIRED_WEBHOOK = "required.pods.mutate.purser.dev"
"""In the mutating configuration where webhooks know conditions."""
_REPLACING_CONTROLLERS = ("DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds of controllers that make another pod for one that is deleted, and count nothing."""
_LABELLED_WEBHOOK_NAMES = ("ignoring", "hami-ignoring")
"""Names of the webhooks for pods with one of `WEBHOOK_LABELS`."""


def mutating_configuration(settings: WebhookSettings, target: ServiceTarget | UrlTarget) -> Raw:
    """The MutatingWebhookConfiguration that should be there, but for the CA, which the scheduler makes.

    ``reinvocationPolicy: IfNeeded``: a webhook that runs later may add a container that asks for devices.
    """
    rules = [_rule(["CREATE"], ["pods"])]
    webhook = _webhook("pods.mutate.purser.dev", "/mutate", rules, settings, target)
    return {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": MUTATING_NAME, "labels": {"app.kubernetes.io/managed-by": "purser"}},
        "webhooks": [{**webhook, "reinvocationPolicy": "IfNeeded"}],
    }


def validating_configuration(settings: WebhookSettings, target: ServiceTarget | UrlTarget) -> Raw:
    """The desired ValidatingWebhookConfiguration, without the CA, which the scheduler makes.

    A Binding's labels are chosen by its writer, so they exempt from nothing. It can be posted to two paths. Pods whose
    own labels exempt them from the webhook are only checked for devices that they name without requesting them; they
    are admitted while Purser is unavailable, with any failure policy.
    """
    bindings = _rule(["CREATE"], ["pods/binding", "bindings"])
    pods = [_rule(["CREATE", "UPDATE"], ["pods"]), _rule(["UPDATE"], ["pods/ephemeralcontainers"])]
    of_pods = _webhook("pods.validate.purser.dev", "/validate", pods, settings, target)
    labelled_webhooks = [
        _webhook(f"{name}.pods.validate.purser.dev", "/validate", pods, settings, target)
        | {"failurePolicy": "Ignore", "objectSelector": {"matchLabels": {label: IGNORE_WEBHOOK}}}
        for name, label in zip(_LABELLED_WEBHOOK_NAMES, WEBHOOK_LABELS, strict=True)
    ]
    bindings_webhook = _webhook("bindings.validate.purser.dev", "/validate", [bindings], settings, target)
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": VALIDATING_NAME, "labels": {"app.kubernetes.io/managed-by": "purser"}},
        "webhooks": [
            of_pods,
            *labelled_webhooks,
            bindings_webhook | {"objectSelector": {}},
            _workloads_webhook(settings, target),
        ],
    }


def _workloads_webhook(settings: WebhookSettings, target: ServiceTarget | UrlTarget) -> Raw:
    """It only warns, so its timeout is short, and nothing is refused without it."""
    rules = [
        {**_rule(["CREATE", "UPDATE"], list(resources)), "apiGroups": [group]} for group, resources in WORKLOADS.items()
    ]
    found = _webhook("workloads.warn.purser.dev", "/warn", rules, settings, target)
    return {**found, "failurePolicy": "Ignore", "timeoutSeconds": 2}


def nodes_webhook(settings: WebhookSettings, target: ServiceTarget | UrlTarget, conditions: Sequence[Raw] = ()) -> Raw:
    """For the validating configuration before Kubernetes 1.30: what accounts on nodes write there, and of events.

    ``conditions``: the users it applies to, for Kubernetes 1.28 and 1.29. Other users' writes do not wait for an
    answer, and these users' writes are not admitted without one. Older API servers also send every write of kubelets
    and administrators, which has to be admitted without an answer, and quickly; events are left out there, because
    there are too many.
    """
    rules = [_rule(["CREATE", "UPDATE", "DELETE"], ["nodes", "nodes/status"], "Cluster")]
    if conditions:
        rules.append(_rule(["CREATE", "UPDATE", "DELETE"], ["events"]))
    webhook = _webhook(NODES_WEBHOOK, "/validate", rules, settings, target)
    found = {**webhook, "namespaceSelector": {}, "objectSelector": {}, "failurePolicy": "Ignore", "timeoutSeconds": 2}
    return {**found, "failurePolicy": "Fail", "matchConditions": list(conditions)} if conditions else found


def evictions_webhook(settings: WebhookSettings, target: ServiceTarget | UrlTarget, conditions: Sequence[Raw]) -> Raw:
    """For the validating configuration from Kubernetes 1.28 on: evictions by accounts on nodes.

    ``conditions``: the users it applies to. Other users' evictions do not wait for an answer, and these users' are
    refused without one.
    """
    webhook = _webhook(EVICTIONS_WEBHOOK, "/validate", [_rule(["CREATE"], ["pods/eviction"])], settings, target)
    fixed_fields = {"namespaceSelector": {}, "objectSelector": {}, "failurePolicy": "Fail"}
    return {**webhook, **fixed_fields, "matchConditions": list(conditions)}


def required_webhook(settings: WebhookSettings, target: ServiceTarget | UrlTarget) -> Raw:
    """For the mutating configuration from Kubernetes 1.28 on: GPU pods that must not be admitted without an answer.

    Other pods that miss the webhook wait on their node, where the agent lets them not start, and are recreated. These
    cannot: kubelet asks no device plugin about amounts, so that a pod that asks for them alone would start without a
    GPU; a Job counts a pod that is deleted as failed; and a pod without a controller is not recreated.
    """
    some = "string(c.resources.limits[r]) != '0' && ({})"
    named = f"object.spec.containers.exists(c, has(c.resources.limits) && c.resources.limits.exists(r, {some}))"
    kubelet_resource = f"r == {GPU_RESOURCE!r} || r.startsWith({MIG_PREFIX!r})"
    of = f"o.kind in [{', '.join(map(repr, _REPLACING_CONTROLLERS))}] && has(o.controller) && o.controller"
    conditions = {
        "asks-for-gpus": named.format(f"{kubelet_resource} || r in [{', '.join(map(repr, AMOUNTS))}]"),
        "cannot-wait-on-its-node": (
            f"!{named.format(kubelet_resource)} || object.spec.schedulerName == {DEFAULT_SCHEDULER!r} && "
            f"!(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, {of}))"
        ),
    }
    return {
        **_webhook(REQUIRED_WEBHOOK, "/mutate", [_rule(["CREATE"], ["pods"])], settings, target),
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConditions": [{"name": name, "expression": what} for name, what in conditions.items()],
    }


def _webhook(
    name: str,
    path: str,
    rules: list[Raw],
    settings: WebhookSettings,
    target: ServiceTarget | UrlTarget,
) -> Raw:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": _client_config(target, path),
        "rules": rules,
        "failurePolicy": settings.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": settings.timeout_seconds,
        "namespaceSelector": {"matchExpressions": [*_NOT_IGNORED_EXPRESSIONS, *_exclude_own_namespace(target)]},
        "objectSelector": {"matchExpressions": _NOT_IGNORED_EXPRESSIONS},
    }


_NOT_IGNORED_EXPRESSIONS = [{"key": key, "operator": "NotIn", "values": [IGNORE_WEBHOOK]} for key in WEBHOOK_LABELS]


def _exclude_own_namespace(target: ServiceTarget | UrlTarget) -> list[Raw]:
    """With ``failurePolicy: Fail`` Purser could not start again, were its own pods to wait for its webhook."""
    return [] if isinstance(target, UrlTarget) else [exclude_namespace(target.namespace)]


def exclude_namespace(name: str) -> Raw:
    """The expression of a namespace selector that leaves one out."""
    return {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [name]}


def _rule(operations: list[str], resources: list[str], scope: str = "Namespaced") -> Raw:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": resources,
        "scope": scope,
    }


def _client_config(target: ServiceTarget | UrlTarget, path: str) -> Raw:
    if isinstance(target, UrlTarget):
        host = f"[{target.host}]" if ":" in target.host else target.host
        return {"url": f"https://{host}:{target.port}{path}"}
    return {"service": {"namespace": target.namespace, "name": target.name, "port": target.port, "path": path}}
