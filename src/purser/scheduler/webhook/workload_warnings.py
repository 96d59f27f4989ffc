"""Warnings about a Deployment, Job or the like whose pods Purser would refuse or leave alone; it refuses none itself.

Its pods are created by a controller, whose warnings users do not see.
"""

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.scheduler.bodies import WEBHOOK_BODIES
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import (
    AdmissionRequest,
    Decision,
    DecisionReason,
    GroupVersionResource,
    ReviewError,
)

WORKLOADS = {
    "apps": ("daemonsets", "deployments", "statefulsets"),
    "batch": ("cronjobs", "jobs"),
    "": ("replicationcontrollers",),
}
"""By API group. ReplicaSets are nearly always a Deployment's, which is asked about itself."""

_POD = GroupVersionResource("", "v1", "pods")


class _Template(msgspec.Struct, frozen=True):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    template: _Template | None = None
    job_template: "_JobTemplate | None" = None


class _JobTemplate(msgspec.Struct, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


class _Workload(msgspec.Struct, frozen=True):
    kind: str = ""
    spec: _TemplateSpec = _TemplateSpec()


_workload_reader = JsonReader(_Workload, "the workload", max_bytes=WEBHOOK_BODIES.per_body)


class WorkloadWarnings:
    """Asks what the webhook for pods would say of a workload's template."""

    def __init__(self, pods: Mutation) -> None:
        self._pods = pods

    def review(self, request: AdmissionRequest) -> Decision:
        """Always allowed. Raises `ReviewError` for an object that cannot be read."""
        if not request.has_object or request.sub_resource:
            return Decision(True, DecisionReason.NOT_A_POD)
        try:
            workload = _workload_reader.read(request.object)
        except UnreadableError as error:
            raise ReviewError(str(error)) from error
        spec = workload.spec if workload.spec.job_template is None else workload.spec.job_template.spec
        if spec.template is None:
            return Decision(True, DecisionReason.NOT_A_POD)
        body = msgspec.Raw(msgspec.json.encode(spec.template))
        pod = msgspec.structs.replace(
            request, resource=_POD, operation="CREATE", object=body, old_object=msgspec.Raw(b"")
        )
        decision = self._pods.review(pod)
        refusal = () if decision.allowed else (f"pods of this {workload.kind} will be denied: {decision.message}",)
        return Decision(True, decision.why, warnings=(*refusal, *decision.warnings))
