"""What can be set of the scheduler, and why each default is what it is."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from purser.core.names import DEFAULT_NAMESPACE, SCHEDULER_NAME
from purser.core.placement.policy import Policy

DEVICE_NAMESPACES = ("kube-system",)
"""Only an administrator writes there."""


@dataclass(frozen=True)
class ServiceTarget:
    """The webhook behind a Service, as in a cluster."""

    namespace: str
    name: str
    port: int = 443


@dataclass(frozen=True)
class UrlTarget:
    """The webhook at a host and port that the API server reaches, as in the lab."""

    host: str
    port: int = 0
    """0: the port that the server listens on."""


@dataclass(frozen=True)
class LeaseTarget:
    """A Lease by which kube-scheduler's replicas elect a leader."""

    namespace: str
    name: str


@dataclass(frozen=True)
class ServerSettings:
    """Where the scheduler listens, and whom it answers. Port 0: any free port, for tests and the lab."""

    webhook_address: str = "0.0.0.0"
    webhook_port: int = 8443
    webhook_client_ca_file: Path | None = None
    """Where set, the webhook answers only clients with a certificate by this CA: API servers told to show one."""
    certificate_folder: Path | None = None
    """Where set, ``tls.crt``, ``tls.key`` and ``ca.crt`` in it are what webhook and extender serve, and somebody else
    renews them. Else the scheduler makes its own."""
    webhook_client_names: tuple[str, ...] = ()
    """Where set, of these only those with one of these common names."""
    extender_address: str = "127.0.0.1"
    """kube-scheduler runs in the same pod. Any other than a loopback address needs the CA below."""
    extender_port: int = 8444
    extender_client_ca_file: Path | None = None
    """Where set, the extender answers only clients with a certificate by this CA."""
    metrics_address: str = "0.0.0.0"
    metrics_port: int = 9401
    """Plain HTTP: metrics and health, nothing else."""


@dataclass(frozen=True)
class WebhookSettings:
    """How the API server is to ask the webhook."""

    target: ServiceTarget | UrlTarget = field(
        default_factory=lambda: ServiceTarget(DEFAULT_NAMESPACE, "purser-webhook")
    )
    failure_policy: str = "Ignore"
    """``Ignore`` keeps a cluster without Purser usable: a GPU pod that slips through gets none. ``Fail`` refuses it."""
    timeout_seconds: int = 5
    device_namespaces: tuple[str, ...] = DEVICE_NAMESPACES
    """Where pods may name NVIDIA's devices without asking for GPUs, as exporters and NVIDIA's own operands do; Purser's
    namespace is one as well."""
    scheduler_user: str = ""
    """The user whose Bindings may carry grants. Empty: asked of the API server, where it knows (Kubernetes 1.28)."""

    def target_at(self, port: int) -> ServiceTarget | UrlTarget:
        """The target, where the server listens on this port."""
        target = self.target
        return replace(target, port=port) if isinstance(target, UrlTarget) and target.port == 0 else target


@dataclass(frozen=True)
class SchedulerSettings:
    """Everything about one scheduler process."""

    namespace: str = DEFAULT_NAMESPACE
    """Where Purser's own Secrets and ConfigMaps are."""
    scheduler_name: str = SCHEDULER_NAME
    """The kube-scheduler profile that asks this extender."""
    adopted_scheduler_names: tuple[str, ...] = ()
    """Other schedulers' names whose GPU pods are Purser's to place, such as ``volcano`` and ``hami-scheduler``. None by
    default: that scheduler may be at work in the cluster."""
    policy: Policy = field(default_factory=Policy)
    """Where pods say nothing themselves."""
    server: ServerSettings = field(default_factory=ServerSettings)
    webhook: WebhookSettings | None = field(default_factory=WebhookSettings)
    """None: no webhook configuration is looked after; the paths are served all the same."""
    follow_lease: LeaseTarget | None = None
    """kube-scheduler's lease: pods are bound only while its holder runs on this host. None: always, for one replica."""
    host_name: str = ""
    """What kube-scheduler's identity starts with where it runs beside this process. Empty: this machine's name."""
