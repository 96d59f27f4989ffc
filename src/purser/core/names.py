"""Names that Purser writes into a cluster: one place, so that two rooms never spell one differently."""

INVENTORY_ANNOTATION = "purser.dev/inventory"
"""On a node, written by its agent: the JSON of a `NodeInventory`, written only when it changed."""

KUBELET_ANNOTATION = "purser.dev/kubelet"
"""On a node, written by its agent: how its kubelet is configured and what it has given away, as
`purser.core.kubelet.report` writes it."""

GRANT_ANNOTATION = "purser.dev/grant"
"""On a pod, copied there from the Binding: the JSON of its `Grant`."""

GRANT_SIGNATURE_ANNOTATION = "purser.dev/grant-signature"
"""On a pod, beside the grant: base64 of the Ed25519 signature over the exact bytes of the grant annotation."""

PROTECTED_POD_ANNOTATIONS = (GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION)
"""Only a Binding may bring these; the webhook refuses them from anybody on create and any change of them on update."""

INIT_RESOURCES_ANNOTATION = "purser.dev/init-resources"
"""On a pod, written by the webhook: what its init containers ask for in words that kubelet must not see."""

FIXED_POD_ANNOTATIONS = (*PROTECTED_POD_ANNOTATIONS, INIT_RESOURCES_ANNOTATION)
"""The webhook refuses any change of these on update."""

ROOM_ANNOTATION = "purser.dev/room-found"
"""On a pod that was refused, written by the scheduler: when it was found to fit after all."""

NODE_POLICY_ANNOTATION = "purser.dev/node-policy"
"""On a pod: ``binpack`` or ``spread`` between nodes."""

GPU_POLICY_ANNOTATION = "purser.dev/gpu-policy"
"""On a pod: ``binpack``, ``spread``, ``mutex``, ``numa``, ``topology-aware`` or a comma chain between a node's GPUs."""

WEBHOOK_LABELS = ("purser.dev/webhook", "hami.io/webhook")
"""On a pod or namespace: the value `IGNORE_WEBHOOK` keeps Purser's webhook away."""

IGNORE_WEBHOOK = "ignore"

SCHEDULER_NAME = "purser-scheduler"
"""The kube-scheduler profile that asks Purser's extender."""

GPU_RESOURCE = "nvidia.com/gpu"
"""The one extended resource that the agent advertises: kubelet hands out its ids for every dialect."""

DEFAULT_NAMESPACE = "purser-system"
GRANT_KEY_SECRET = "purser-grant-signing-key"
"""Secret in Purser's namespace with the private signing key; only the scheduler reads it."""

GRANT_KEY_CONFIGMAP = "purser-grant-keys"
"""ConfigMap in Purser's namespace with the public keys that agents verify grants with."""

GRANT_KEY_CONFIGMAP_FIELD = "keys"
"""In it: the public keys, PEM, one after another."""
