"""What can be set of the scheduler, and why each default is what it is."""

from dataclasses import dataclass, field
from pathlib import Path

from purser.core.names import DEFAULT_NAMESPACE, SCHEDULER_NAME
from purser.core.placement.policy import Policy


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
    """Where the scheduler listens, and whom it answers."""

    bind_address: str = "0.0.0.0"
    port: int = 8443
    """0: any free port, for tests and the lab."""
    metrics_address: str = "0.0.0.0"
    metrics_port: int = 9401
    """Plain HTTP: metrics and health, nothing else. 0: any free port."""
    client_ca_file: Path | None = None
    """Where set, webhook and extender answer only clients with a certificate by this CA, or with the token below."""
    bearer_token_file: Path | None = None
    """Where set, likewise. kube-scheduler sends no tokens to extenders, the API server can to webhooks."""


@dataclass(frozen=True)
class WebhookSettings:
    """The webhook's registration with the API server."""

    target: ServiceTarget | UrlTarget = field(
        default_factory=lambda: ServiceTarget(DEFAULT_NAMESPACE, "purser-webhook")
    )
    failure_policy: str = "Ignore"
    """``Ignore`` keeps a cluster without Purser usable: a GPU pod that slips through gets none. ``Fail`` refuses it."""
    timeout_seconds: int = 5
    scheduler_user: str = ""
    """The user whose Bindings may carry grants. Empty: asked of the API server, where it knows (Kubernetes 1.28)."""


@dataclass(frozen=True)
class SchedulerSettings:
    """Everything about one scheduler process."""

    namespace: str = DEFAULT_NAMESPACE
    """Where Purser's own Secrets and ConfigMaps are."""
    scheduler_name: str = SCHEDULER_NAME
    """The kube-scheduler profile that asks this extender."""
    policy: Policy = field(default_factory=Policy)
    """Where pods say nothing themselves."""
    server: ServerSettings = field(default_factory=ServerSettings)
    webhook: WebhookSettings | None = field(default_factory=WebhookSettings)
    """None: no webhook is registered; the paths are served all the same."""
    follow_lease: LeaseTarget | None = None
    """kube-scheduler's lease: pods are bound only while its holder runs on this host. None: always, for one replica."""
    host_name: str = ""
    """What kube-scheduler's identity starts with where it runs beside this process. Empty: this machine's name."""
