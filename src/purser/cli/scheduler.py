"""`purser scheduler`: the webhook and extender servers."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from purser.cli.options import Context, Kubeconfig, LogLevelOption, MetricsAddress, MetricsPort
from purser.cli.output import MISUSED, fail, one_of
from purser.cli.serving import LogLevel
from purser.core.names import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from purser.core.placement import Policy
    from purser.scheduler.settings import LeaseTarget, ServiceTarget, UrlTarget

HELP = """Serve Purser's admission webhook and scheduler extender.

Runs beside a kube-scheduler with the profile purser-scheduler; the Helm chart sets both up. While the API server is
away it is waited for.

Exit code: 0 it was told to stop; 1 a port is taken, or a Secret holds no usable key; 2 wrong usage: an option, or a
file that it names.

Example: purser scheduler --kubeconfig ~/.kube/config --webhook-url 127.0.0.1:8443
"""

T = TypeVar("T")

WebhookService = Annotated[
    str | None,
    typer.Option(
        metavar="NAMESPACE/NAME", help="The Service before the webhook; default: purser-webhook in --namespace."
    ),
]
WebhookUrl = Annotated[
    str | None,
    typer.Option(metavar="HOST[:PORT]", help="Where the API server reaches the webhook without a Service."),
]
FailurePolicy = Annotated[
    str, typer.Option(help="Ignore: pods are admitted while Purser is away; Fail: they are refused.")
]


def scheduler(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[str, typer.Option(help="Where Purser keeps its Secrets and ConfigMaps.")] = DEFAULT_NAMESPACE,
    webhook_address: Annotated[str, typer.Option(help="Address of the webhook.")] = "0.0.0.0",
    webhook_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the webhook; 0: any free one.")] = 8443,
    certificate_folder: Annotated[
        Path | None,
        typer.Option(
            help="Serve the certificate in this folder (tls.crt, tls.key and ca.crt, which somebody else renews); "
            "default: one of its own making."
        ),
    ] = None,
    webhook_client_ca_file: Annotated[
        Path | None, typer.Option(help="Have the webhook answer only clients with a certificate by this CA.")
    ] = None,
    webhook_client_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of these, only those with this common name; may be given several times."),
    ] = None,
    extender_address: Annotated[
        str, typer.Option(help="Address of the extender; other than loopback needs --extender-client-ca-file.")
    ] = "127.0.0.1",
    extender_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the extender; 0: any free one.")] = 8444,
    extender_client_ca_file: Annotated[
        Path | None, typer.Option(help="Have the extender answer only clients with a certificate by this CA.")
    ] = None,
    metrics_address: MetricsAddress = "0.0.0.0",
    metrics_port: MetricsPort = 9401,
    node_policy: Annotated[
        str,
        typer.Option(
            help="Which node, where a pod does not say: random, binpack, spread, best-fit, dot-product, packing, "
            "clustering, fragmentation or purser, or up to four with weights: fragmentation=3,spread=1."
        ),
    ] = "purser",
    gpu_policy: Annotated[
        str,
        typer.Option(
            help="Which of its GPUs, likewise: binpack, spread, mutex, numa, topology-aware or a comma chain of these; "
            "or random, best-fit, fragmentation or purser, alone or with mutex."
        ),
    ] = "purser",
    authority: Annotated[
        str, typer.Option(help="shared: kube-scheduler's scores count too; exclusive: best node only.")
    ] = "shared",
    nodes_to_score: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many of the nodes that fit a pod kube-scheduler scores, the best ones; 0: all, as always for "
            "pods that say which nodes they would rather have.",
        ),
    ] = 100,
    follow_lease: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="kube-scheduler's Lease: bind only while the one beside this process holds it.",
        ),
    ] = None,
    webhook: Annotated[bool, typer.Option(help="Keep the CA in the webhook configurations up to date.")] = True,
    webhook_service: WebhookService = None,
    webhook_url: WebhookUrl = None,
    webhook_failure_policy: FailurePolicy = "Ignore",
    webhook_scheduler_user: Annotated[
        str, typer.Option(help="User whose Bindings may carry grants; default: asked of the API server.")
    ] = "",
    device_namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="Namespace whose pods may name NVIDIA's devices without asking for GPUs; may be repeated. "
            "Default: kube-system; empty: none."
        ),
    ] = None,
    adopt_scheduler_name: Annotated[
        list[str] | None,
        typer.Option(help="schedulerName whose GPU pods are Purser's too, such as volcano; may be repeated."),
    ] = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the scheduler until it is told to stop."""
    import asyncio
    import gc

    from purser.cli.kernels import choose_kernels
    from purser.cli.serving import configure_logs, serve
    from purser.kube import ClusterConfig
    from purser.scheduler.keys import SigningKeyError
    from purser.scheduler.run import Addresses, run
    from purser.scheduler.settings import DEVICE_NAMESPACES, SchedulerSettings, ServerSettings, WebhookSettings

    settings = SchedulerSettings(
        namespace=namespace,
        policy=_policy(node_policy, gpu_policy, authority, nodes_to_score),
        server=ServerSettings(
            webhook_address=webhook_address,
            webhook_port=webhook_port,
            certificate_folder=certificate_folder,
            webhook_client_ca_file=webhook_client_ca_file,
            webhook_client_names=tuple(webhook_client_name or ()),
            extender_address=extender_address,
            extender_port=extender_port,
            extender_client_ca_file=extender_client_ca_file,
            metrics_address=metrics_address,
            metrics_port=metrics_port,
        ),
        webhook=WebhookSettings(
            webhook_target(namespace, webhook_service, webhook_url),
            failure_policy(webhook_failure_policy),
            scheduler_user=webhook_scheduler_user,
            device_namespaces=DEVICE_NAMESPACES if device_namespace is None else tuple(filter(None, device_namespace)),
        )
        if webhook
        else None,
        follow_lease=_lease(follow_lease),
        adopted_scheduler_names=tuple(filter(None, adopt_scheduler_name or ())),
    )
    configure_logs(log_level)
    choose_kernels()

    def on_ready(_: Addresses) -> None:
        """What was listed stays: without this, each full collection would walk all of it, tens of milliseconds."""
        gc.collect()
        gc.freeze()

    async def main(stop: asyncio.Event) -> None:
        await run(settings, ClusterConfig.load(kubeconfig, context), stop, on_ready)

    try:
        serve(main)
    except SigningKeyError as error:
        fail(str(error))


def _policy(node: str, gpu: str, authority: str, nodes_to_score: int) -> "Policy":
    from purser.core.placement import Authority, Policy
    from purser.core.policy_words import canonical_node_policy, gpu_policies

    return Policy(
        _read("--node-policy", canonical_node_policy, node),
        _read("--gpu-policy", gpu_policies, gpu),
        Authority(one_of("--authority", authority, [*Authority])),
        nodes_to_score,
    )


def _read(option: str, reader: Callable[[str], T], text: str) -> T:
    try:
        return reader(text)
    except ValueError as error:
        fail(f"{option}: {error}", MISUSED)


def failure_policy(word: str) -> str:
    """The webhook's failure policy. Ends the command for a word that is none."""
    return one_of("--webhook-failure-policy", word, ("Ignore", "Fail"))


def webhook_target(namespace: str, service: str | None, url: str | None) -> "ServiceTarget | UrlTarget":
    """Where the API server finds the webhook. Ends the command for options that make no sense."""
    from purser.scheduler.settings import ServiceTarget, UrlTarget

    if service is not None and url is not None:
        fail("--webhook-service and --webhook-url exclude each other", MISUSED)
    if url is not None:
        return UrlTarget(*_host_and_port("--webhook-url", url))
    return (
        ServiceTarget(*_pair("--webhook-service", service)) if service else ServiceTarget(namespace, "purser-webhook")
    )


def _host_and_port(option: str, text: str) -> tuple[str, int]:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port or 0
    except ValueError:
        host, port = None, 0
    if not host or parts.netloc != text:
        fail(f"{option} is {text}: give HOST or HOST:PORT, an IPv6 address in brackets", MISUSED)
    return host, port


def _lease(text: str | None) -> "LeaseTarget | None":
    from purser.scheduler.settings import LeaseTarget

    return LeaseTarget(*_pair("--follow-lease", text)) if text is not None else None


def _pair(option: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        fail(f"{option} is {text}: give NAMESPACE/NAME", MISUSED)
    return namespace, name
