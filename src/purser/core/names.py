"""Names that Purser writes into a cluster: one place, so that two rooms never spell one differently."""

from collections.abc import Mapping

INVENTORY_ANNOTATION = "purser.dev/inventory"
"""On a node, written by its agent: the JSON of a `NodeInventory`, written only when it changed."""

KUBELET_ANNOTATION = "purser.dev/kubelet"
"""On a node, written by its agent: how its kubelet is configured and what it has given away, as
`purser.core.kubelet.report` writes it."""

DISPUTES_ANNOTATION = "purser.dev/disputes"
"""On a node, written by its agent, and only while there are disputes: the JSON of a `NodeDisputes`."""

CORDONED_GPUS_ANNOTATION = "purser.dev/cordoned-gpus"
"""On a node, written by people (`purser cordon gpu`): uuids of GPUs that get no new pods, separated by commas."""

HAMI_CORDON_ANNOTATION = "hami.io/device-cordon"
"""The same in HAMi's words."""

CORDON_ANNOTATIONS = (CORDONED_GPUS_ANNOTATION, HAMI_CORDON_ANNOTATION)
"""Where cordoned GPUs stand; what both say counts."""

DISPUTED_CONDITION = "PurserGpuDisputed"
"""Type of the Node condition that names the pods in the way, in the node's status only while there are any."""

HEALTH_CONDITION = "PurserGpuUnhealthy"
"""Type of the Node condition that says what is wrong with GPUs, in the node's status only while anything is: True while
any of them takes no pods, False while some are degraded. And of the condition of pods that hold an unhealthy GPU."""

AGENT_STOPPING = "the node's agent is stopping"
NOT_LISTED = "no device plugin reports it to kubelet"
AGENT_AWAY = "the node's agent is not running, or is not registered with kubelet"
NO_MIG_DEVICES = (
    "MIG mode is enabled, but the node lists no MIG devices for this GPU: create MIG devices, or disable MIG mode"
)
UNSERVED_REASONS = frozenset({AGENT_STOPPING, AGENT_AWAY, NOT_LISTED})
"""Why a device is closed to new pods although nothing is known to be wrong with it."""

UNHEALTHY_TAINT = "purser.dev/gpu-unhealthy"
"""Key of the taint that an agent sets on its node while a GPU takes no pods, where it is allowed to."""

HEALTH_CORDON_ANNOTATION = "purser.dev/cordoned-for-gpu"
"""On a node that its agent cordoned because a GPU needs a reboot: a cordon without it is not the agent's."""

AGENT_CONDITIONS = (DISPUTED_CONDITION, HEALTH_CONDITION)
"""Those that an agent writes on its node."""

GRANT_ANNOTATION = "purser.dev/grant"
"""On a pod, copied there from the Binding: the JSON of its `Grant`."""

GRANT_SIGNATURE_ANNOTATION = "purser.dev/grant-signature"
"""On a pod, beside the grant: base64 of the Ed25519 signature over the exact bytes of the grant annotation."""

PROTECTED_POD_ANNOTATIONS = (GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION)
"""Only a Binding may bring these; the webhook refuses them on create and any change of them on update, for all
users."""

ASKED_ANNOTATION = "purser.dev/asked"
"""On the event `Granted`: what the pod asks for, as `purser.core.placement.asked` writes it."""

INIT_RESOURCES_ANNOTATION = "purser.dev/init-resources"
"""On a pod of before nodes listed amounts: what its init containers ask for (`purser.core.dialects.init_resources`)."""

MEMORY_UNITS_ANNOTATION = "purser.dev/memory-units"
"""On a pod, written by the webhook: the MiB of one of each resource that is not counted in its usual unit, as
`purser.core.pod.units` reads it."""

AWAITS_GRANT_ANNOTATION = "purser.dev/awaits-grant"
"""On a pod of another scheduler that Purser serves (``scheduler.serveSchedulerNames``), written by the webhook: a grant
follows its Binding."""

AWAITS_GRANT, NOT_GRANTED = "true", "false"
"""Values of `AWAITS_GRANT_ANNOTATION`; the second where Purser's scheduler found that the pod cannot have one."""

WEBHOOK_PROBE_ANNOTATION = "purser.dev/webhook-probe"
"""On a Binding in a dry run: the webhook denies it, so the scheduler learns that the API server calls the webhook."""

FIXED_POD_ANNOTATIONS = (
    *PROTECTED_POD_ANNOTATIONS,
    INIT_RESOURCES_ANNOTATION,
    MEMORY_UNITS_ANNOTATION,
    AWAITS_GRANT_ANNOTATION,
)
"""The webhook refuses any change of these on update."""

ROOM_ANNOTATION = "purser.dev/room-found"
"""On a pod that was refused, written by the scheduler: when it was found to fit after all."""

NODE_POLICY_ANNOTATION = "purser.dev/node-policy"
"""On a pod: which node is best, as `purser.core.policy.words.node_policies` reads it."""

GPU_POLICY_ANNOTATION = "purser.dev/gpu-policy"
"""On a pod: which GPUs of a node are best, as `purser.core.policy.words.gpu_policies` reads it."""

GPU_NIC_ANNOTATION = "purser.dev/gpu-nic"
"""On a pod: `GpuNic`, for containers that ask for GPUs and for devices of an SR-IOV pool."""

ENFORCEMENT_ANNOTATION = "purser.dev/enforcement"
"""On a pod or a namespace: with the value `ENFORCEMENT_REQUIRED` a share is placed only where something holds it to its
limits."""

ENFORCEMENT_REQUIRED = "required"

WEBHOOK_LABELS = ("purser.dev/webhook", "hami.io/webhook")
"""On a pod or namespace: the value `IGNORE_WEBHOOK` keeps Purser's webhook away."""

IGNORE_WEBHOOK = "ignore"


def ignore_label_of(labels: Mapping[str, str]) -> str:
    """The label of a pod or namespace that keeps Purser's webhook away; empty where none does."""
    return next((label for label in WEBHOOK_LABELS if labels.get(label) == IGNORE_WEBHOOK), "")


SCHEDULER_NAME = "purser-scheduler"
"""The kube-scheduler profile that asks Purser's extender."""

GPU_RESOURCE = "nvidia.com/gpu"
"""GPUs: kubelet hands out its ids for every dialect. What else devices are listed under, `purser.core.device.resources`
knows."""

MODEL_LABEL_PREFIX = "gpu.purser.dev/"
"""Of a node's labels by model, such as ``gpu.purser.dev/NVIDIA-L4``: how many of its GPUs are of it. With a prefix of
its own a key has room for the longest of models."""

DEFAULT_NAMESPACE = "purser-system"
GRANT_KEY_SECRET = "purser-grant-signing-key"
"""Secret in Purser's namespace with the private signing key; only the scheduler reads it."""

ROTATE_ANNOTATION = "purser.dev/rotate"
"""On that Secret, written by an administrator: replace the key, and go on trusting grants that it signed."""

GRANT_KEY_CONFIGMAP = "purser-grant-keys"
"""ConfigMap in Purser's namespace with the public keys that agents verify grants with."""

GRANT_KEY_CONFIGMAP_FIELD = "keys"
"""In it: the public keys, PEM, one after another."""

TLS_SECRET = "purser-scheduler-tls"
"""Secret in Purser's namespace with the CA and the certificate that the scheduler makes for itself."""

CA_CONFIGMAP = "purser-ca"
"""ConfigMap in Purser's namespace with the CA of the certificate that the scheduler serves."""

CA_CONFIGMAP_FIELD = "ca.crt"
"""In it: certificates, PEM."""

KUBE_SCHEDULER_LEASE = "purser-kube-scheduler"
"""Lease in Purser's namespace by which the chart's kube-schedulers elect the one that places pods."""

NODE_FACTS_ANNOTATION = "purser.dev/node-facts"
"""On a node, written by Purser's discovery: the JSON of `NodeFacts`, written only when it changed."""

MIG_WANTED_ANNOTATION = "purser.dev/mig-wanted"
"""On a node, written by the operator: the JSON of a `MigRequest` for the node's MIG worker."""

MIG_RESULT_ANNOTATION = "purser.dev/mig-result"
"""On a node, written by its MIG worker: the JSON of the `MigResult` of its last request."""

# --- what the operator writes on nodes, and others read

DEPLOY_PREFIX = "nvidia.com/gpu.deploy."
"""On a node, before an operand's name: ``true`` where the operand runs, a pause, or what people wrote."""

GPU_PRESENT_LABEL = "nvidia.com/gpu.present"

POOL_LABEL = "purser.dev/driver-pool"
"""On a node and on a driver DaemonSet: the pool of equal OS, kernel and profile."""

UPGRADE_STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"

UPGRADE_FAILURE_ANNOTATION = "purser.dev/driver-upgrade-failure"
"""On a node: why its upgrade failed, in one sentence."""

CORDONED_BY_ANNOTATION = "purser.dev/cordoned-by"
"""On a node: the cordon is Purser's (``driver-upgrade`` or ``mig-change``). A cordon without it is never lifted."""

MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
