"""What can be set of the scheduler, and why each default is what it is. Options are as `purser.options` has them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from purser.core.model import GpuPolicy, NodePolicy
from purser.core.names import DEFAULT_NAMESPACE, SCHEDULER_NAME
from purser.core.policy.settings import PolicySettings
from purser.core.policy.words import (
    ARRAY_WORDS,
    canonical_node_policy,
    gpu_policies,
    gpu_policy_pattern,
    node_policy_pattern,
)
from purser.core.vendors.catalogue import FAMILY_NAMES
from purser.options import (
    MANAGED_RESOURCES,
    MEMORY_UNITS,
    METRICS_ADDRESS,
    METRICS_PORT,
    PORT_MAXIMUM,
    Option,
    OptionGroup,
)

DEVICE_NAMESPACES = ("kube-system",)
"""Only an administrator writes there."""

WEBHOOK_SERVICE = "purser-webhook"
READ_API_SERVICE = "purser-read-api"


@dataclass(frozen=True)
class ServiceTarget:
    """The webhook behind a Service, as in a cluster."""

    namespace: str
    """Empty: Purser's own."""
    name: str
    port: int = 443

    @classmethod
    def parse(cls, text: str) -> "ServiceTarget":
        """Of ``NAMESPACE/NAME``. Raises ValueError."""
        return cls(*_namespace_and_name(text))


@dataclass(frozen=True)
class UrlTarget:
    """The webhook at a host and port that the API server reaches, as in the lab."""

    host: str
    port: int = 0
    """0: the port that the server listens on."""

    @classmethod
    def parse(cls, text: str) -> "UrlTarget":
        """Of ``HOST`` or ``HOST:PORT``. Raises ValueError."""
        parts = urlsplit(f"//{text}")
        if not parts.hostname or parts.netloc != text:
            raise ValueError("the host is missing, or there is more than a host and a port")
        return cls(parts.hostname, parts.port or 0)


@dataclass(frozen=True)
class LeaseTarget:
    """A Lease by which kube-scheduler's replicas elect a leader."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "LeaseTarget":
        """Of ``NAMESPACE/NAME``. Raises ValueError."""
        return cls(*_namespace_and_name(text))


def _namespace_and_name(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise ValueError("namespace or name is missing")
    return namespace, name


@dataclass(frozen=True)
class ServerSettings:
    """Where the scheduler listens, and whom it answers. Port 0: any free port, for tests and the lab."""

    webhook_address: Annotated[str, Option("Address of the webhook.")] = "0.0.0.0"
    webhook_port: Annotated[
        int, Option("Port of the webhook; 0 picks a free one.", minimum=0, maximum=PORT_MAXIMUM)
    ] = 8443
    certificate_folder: Annotated[
        Path | None,
        Option(
            "Serve the certificate in this folder (tls.crt, tls.key and ca.crt, renewed by another tool); "
            "default: issue one."
        ),
    ] = None
    """Webhook and extender serve it."""
    webhook_client_ca_file: Annotated[
        Path | None,
        Option(
            "File with a CA certificate. Clients of the webhook must present a certificate from this CA. "
            "Default: clients need no certificate."
        ),
    ] = None
    """API servers present one where they are configured to."""
    webhook_client_names: Annotated[
        tuple[str, ...],
        Option(
            "Common name of a client that the webhook accepts. Default: any client with a certificate from the CA.",
            name="webhook-client-name",
            metavar="NAME",
            value="webhook.clientCA.names",
            repeated=True,
        ),
    ] = ()
    extender_address: Annotated[
        str, Option("Address of the extender; any address other than loopback requires --extender-client-ca-file.")
    ] = "127.0.0.1"
    """kube-scheduler runs in the same pod."""
    extender_port: Annotated[
        int, Option("Port of the extender; 0 picks a free one.", minimum=0, maximum=PORT_MAXIMUM)
    ] = 8444
    extender_client_ca_file: Annotated[
        Path | None,
        Option(
            "File with a CA certificate. Clients of the extender must present a certificate from this CA. "
            "Default: clients need no certificate."
        ),
    ] = None
    read_api_address: Annotated[str, Option("Address of the read API.")] = "0.0.0.0"
    read_api_port: Annotated[
        int | None,
        Option(
            "Port of the read API; 0 picks a free one. Default: the read API is not served.",
            minimum=0,
            maximum=PORT_MAXIMUM,
        ),
    ] = None
    metrics_address: Annotated[str, METRICS_ADDRESS] = "0.0.0.0"
    metrics_port: Annotated[int, replace(METRICS_PORT, value="scheduler.metricsPort")] = 9401
    """Plain HTTP: metrics and health, nothing else."""


@dataclass(frozen=True)
class WebhookSettings:
    """How the API server is to ask the webhook."""

    target: Annotated[
        ServiceTarget | UrlTarget,
        Option(
            "Service of the webhook. Default: purser-webhook in --namespace.",
            name="webhook-service",
            metavar="NAMESPACE/NAME",
            read=ServiceTarget.parse,
            form="NAMESPACE/NAME",
            skips_empty=True,
        ),
        Option(
            "Address at which the API server reaches the webhook without a Service.",
            name="webhook-url",
            metavar="HOST[:PORT]",
            read=UrlTarget.parse,
            form="HOST or HOST:PORT, with IPv6 addresses in brackets",
        ),
    ] = ServiceTarget("", WEBHOOK_SERVICE)
    failure_policy: Annotated[
        str,
        Option(
            (
                "What happens to new pods while no replica of the webhook responds. Ignore: they are admitted, and GPU "
                "pods wait; from Kubernetes 1.28 on, GPU pods that could not wait are rejected. Fail: all pods are "
                "rejected, even those without GPUs."
            ),
            name="webhook-failure-policy",
            value="webhook.failurePolicy",
            words=("Ignore", "Fail"),
        ),
    ] = "Ignore"
    """``Ignore`` keeps a cluster without Purser usable: a GPU pod that slips through waits. ``Fail`` refuses all."""
    timeout_seconds: int = 5
    scheduler_user: Annotated[
        str,
        Option(
            "User whose Bindings may carry grants. Default: the scheduler's own user, as reported by the API server.",
            name="webhook-scheduler-user",
        ),
    ] = ""
    """Empty: asked of the API server, where it knows (Kubernetes 1.28)."""
    agents_taint: Annotated[
        bool,
        Option(
            "Allow agents to taint their own nodes for unhealthy GPUs. Before Kubernetes 1.30, "
            "the webhook checks what agents write."
        ),
    ] = False
    agents_cordon: Annotated[bool, Option("Allow agents to cordon their own nodes.")] = False
    agents_label: Annotated[bool, Option("Allow agents to label their own nodes with the features of their GPUs.")] = (
        False
    )
    device_namespaces: Annotated[
        tuple[str, ...],
        Option(
            "Namespace whose pods may name NVIDIA's devices without requesting GPUs, as exporters do; users must not "
            "be able to create pods there. Empty: none.",
            name="device-namespace",
            value="webhook.deviceNamespaces",
            repeated=True,
            skips_empty=True,
        ),
    ] = DEVICE_NAMESPACES
    """Purser's namespace is one as well."""

    def target_at(self, port: int) -> ServiceTarget | UrlTarget:
        """The target, where the server listens on this port."""
        target = self.target
        return replace(target, port=port) if isinstance(target, UrlTarget) and target.port == 0 else target


def _any_of(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}"


_CHAIN_POLICIES = [word for word in GpuPolicy if word not in ARRAY_WORDS]
_SINGLE_POLICIES = [word for word in GpuPolicy if word in ARRAY_WORDS]

POLICY_OPTIONS = {
    "node": Option(
        f"Node policy for pods that do not name one: {_any_of(NodePolicy)}, or up to four with weights: "
        "fragmentation=3,spread=1.",
        name="node-policy",
        value="scheduler.nodePolicy",
        read=canonical_node_policy,
        pattern=node_policy_pattern(),
    ),
    "gpu": Option(
        f"GPU policy for pods that do not name one: {', '.join(_CHAIN_POLICIES)} or a comma-separated chain of these; "
        f"or {_any_of(_SINGLE_POLICIES)}, alone or with mutex.",
        name="gpu-policy",
        value="scheduler.gpuPolicy",
        read=gpu_policies,
        pattern=gpu_policy_pattern(),
    ),
    "authority": Option(
        "shared: kube-scheduler's scores count too; exclusive: kube-scheduler is offered only Purser's best node.",
        value="scheduler.authority",
    ),
    "nodes_to_score": Option(
        "How many of the best nodes kube-scheduler scores for a pod; 0: all, and Purser nominates no nodes before "
        "kube-scheduler asks. For pods with node preferences, kube-scheduler always scores all nodes that fit.",
        value="scheduler.nodesToScore",
        minimum=0,
    ),
}


@dataclass(frozen=True)
class DecisionLogSettings:
    """The files of the decision log. A file stands by itself, and begins with the state of all nodes."""

    folder: Annotated[
        Path | None,
        Option("Folder for the decision log. Default: no log.", name="decision-log-folder"),
    ] = None
    """Off: it has the names of pods, and who keeps it has to have room for it."""
    file_mib: Annotated[
        int,
        Option(
            "Size in MiB at which the decision log starts a new file.",
            name="decision-log-file-mib",
            value="scheduler.decisionLog.fileMiB",
            minimum=1,
            maximum=4096,
        ),
    ] = 64
    files: Annotated[
        int,
        Option(
            "Number of decision log files to keep; the oldest are removed.",
            name="decision-log-files",
            value="scheduler.decisionLog.files",
            minimum=2,
            maximum=10_000,
        ),
    ] = 16
    """With ``file_mib`` 1 GiB: some two million decisions."""
    one_in: Annotated[
        int,
        Option(
            "Log the decisions for one in this many pods. The devices that pods hold are always logged.",
            name="decision-log-one-in",
            value="scheduler.decisionLog.oneIn",
            minimum=1,
        ),
    ] = 1
    anonymous: Annotated[
        bool,
        Option(
            "Hash names of pods, namespaces and nodes in the decision log, with a key derived from the signing key.",
            value="scheduler.decisionLog.anonymous",
            name="decision-log-anonymous",
        ),
    ] = False


@dataclass(frozen=True)
class SchedulerSettings:
    """Everything about one scheduler process."""

    namespace: Annotated[str, Option("Namespace in which the scheduler runs and keeps its Secrets and ConfigMaps.")] = (
        DEFAULT_NAMESPACE
    )
    scheduler_name: str = SCHEDULER_NAME
    """The kube-scheduler profile that asks this extender."""
    server: Annotated[ServerSettings, OptionGroup()] = field(default_factory=ServerSettings)
    policy: Annotated[PolicySettings, OptionGroup(parts=POLICY_OPTIONS)] = field(default_factory=PolicySettings)
    """Where pods say nothing themselves."""
    follow_lease: Annotated[
        LeaseTarget | None,
        Option(
            "Lease of kube-scheduler. Pods are bound only while the kube-scheduler next to this process holds the "
            "Lease.",
            metavar="NAMESPACE/NAME",
            read=LeaseTarget.parse,
            form="NAMESPACE/NAME",
        ),
    ] = None
    """None: always, for one replica."""
    webhook: Annotated[
        WebhookSettings | None, OptionGroup(switch=Option("Keep the CA in the webhook configurations up to date."))
    ] = field(default_factory=WebhookSettings)
    """None: no webhook configuration is looked after; the paths are served all the same."""
    adopted_scheduler_names: Annotated[
        tuple[str, ...],
        Option(
            "schedulerName of another scheduler, such as volcano, whose GPU pods Purser places; that scheduler must "
            "not place them.",
            name="adopt-scheduler-name",
            value="scheduler.adoptSchedulerNames",
            repeated=True,
            skips_empty=True,
        ),
    ] = ()
    served_scheduler_names: Annotated[
        tuple[str, ...],
        Option(
            "schedulerName of another scheduler, such as volcano, which still places its own GPU pods; Purser "
            "assigns their GPUs on nodes that run an agent.",
            name="serve-scheduler-name",
            value="scheduler.serveSchedulerNames",
            repeated=True,
            skips_empty=True,
        ),
    ] = ()
    memory_units: Annotated[tuple[tuple[str, int], ...], MEMORY_UNITS] = ()
    managed_resources: Annotated[tuple[str, ...], MANAGED_RESOURCES] = ()

    vendors: Annotated[
        tuple[str, ...],
        Option(
            "Device family from another vendor that Purser serves. Empty: none.",
            name="vendor",
            value="vendors",
            words=FAMILY_NAMES,
            repeated=True,
        ),
    ] = ()
    """Named by an administrator: their pods are then Purser's, and of no other scheduler."""
    vendor_accounts: Annotated[
        tuple[str, ...],
        Option(
            "User that another vendor's device plugin uses to write pods, such as "
            "system:serviceaccount:kube-system:hami-dcu. Besides nodes and Purser's scheduler, no other user may "
            "change the pod annotations that the plugin reads.",
            name="vendor-account",
            value="vendorAccounts",
            repeated=True,
        ),
    ] = ()
    decision_log: Annotated[DecisionLogSettings, OptionGroup()] = field(default_factory=DecisionLogSettings)
    host_name: str = ""
    """What kube-scheduler's identity starts with where it runs beside this process. Empty: this machine's name."""

    def __post_init__(self) -> None:
        """A Service without a namespace is in Purser's own."""
        webhook = self.webhook
        if webhook is not None and isinstance(webhook.target, ServiceTarget) and not webhook.target.namespace:
            target = replace(webhook.target, namespace=self.namespace)
            object.__setattr__(self, "webhook", replace(webhook, target=target))
