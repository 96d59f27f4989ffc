"""`purser scheduler`: the webhook and extender servers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from purser.cli.options import Context, Kubeconfig, LogLevelOption, MetricsAddress, MetricsPort
from purser.cli.output import MISUSED, fail
from purser.cli.serving import LogLevel
from purser.core.names import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from purser.core.placement import Policy
    from purser.scheduler.settings import LeaseTarget, ServiceTarget, UrlTarget

HELP = """Serve Purser's admission webhook and scheduler extender.

Runs beside a kube-scheduler with the profile purser-scheduler; the Helm chart sets both up.

Example: purser scheduler --kubeconfig ~/.kube/config --webhook-url 127.0.0.1:8443
"""

T = TypeVar("T")


def scheduler(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[str, typer.Option(help="Where Purser keeps its Secrets and ConfigMaps.")] = DEFAULT_NAMESPACE,
    bind_address: Annotated[str, typer.Option(help="Address of the HTTPS server.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the HTTPS server; 0: any free one.")] = 8443,
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
    follow_lease: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="kube-scheduler's Lease: bind only while the one beside this process holds it.",
        ),
    ] = None,
    webhook: Annotated[bool, typer.Option(help="Register the webhook with the API server.")] = True,
    webhook_service: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME", help="The Service before the webhook; default: purser-webhook in --namespace."
        ),
    ] = None,
    webhook_url: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Where the API server reaches the webhook without a Service."),
    ] = None,
    webhook_failure_policy: Annotated[
        str, typer.Option(help="Ignore: pods are admitted while Purser is away; Fail: they are refused.")
    ] = "Ignore",
    webhook_scheduler_user: Annotated[
        str, typer.Option(help="User whose Bindings may carry grants; default: asked of the API server.")
    ] = "",
    client_ca_file: Annotated[
        Path | None, typer.Option(help="Answer only clients with a certificate by this CA.")
    ] = None,
    bearer_token_file: Annotated[Path | None, typer.Option(help="Answer only clients with this token.")] = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the scheduler until it is told to stop."""
    import asyncio
    import gc

    from purser.cli.serving import configure_logs, serve
    from purser.kube import ClusterConfig
    from purser.scheduler.keys import SigningKeyError
    from purser.scheduler.run import Addresses, run
    from purser.scheduler.settings import SchedulerSettings, ServerSettings, WebhookSettings

    settings = SchedulerSettings(
        namespace=namespace,
        policy=_policy(node_policy, gpu_policy, authority),
        server=ServerSettings(bind_address, port, metrics_address, metrics_port, client_ca_file, bearer_token_file),
        webhook=WebhookSettings(
            _target(namespace, webhook_service, webhook_url),
            _one_of("--webhook-failure-policy", webhook_failure_policy, ("Ignore", "Fail")),
            scheduler_user=webhook_scheduler_user,
        )
        if webhook
        else None,
        follow_lease=_lease(follow_lease),
    )
    configure_logs(log_level)

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


def _policy(node: str, gpu: str, authority: str) -> "Policy":
    from purser.core.placement import Authority, Policy
    from purser.core.policy_words import canonical_node_policy, gpu_policies

    return Policy(
        _read("--node-policy", canonical_node_policy, node),
        _read("--gpu-policy", gpu_policies, gpu),
        Authority(_one_of("--authority", authority, [*Authority])),
    )


def _read(option: str, reader: Callable[[str], T], text: str) -> T:
    try:
        return reader(text)
    except ValueError as error:
        fail(f"{option}: {error}", MISUSED)


def _one_of(option: str, word: str, words: Sequence[str]) -> str:
    if word not in words:
        fail(f"{option} is {word}: give {' or '.join(words)}", MISUSED)
    return word


def _target(namespace: str, service: str | None, url: str | None) -> "ServiceTarget | UrlTarget":
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
