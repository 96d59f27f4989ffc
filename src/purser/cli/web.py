"""`purser web`: the fleet as web pages, on this machine."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.options import Context, Kubeconfig
from purser.cli.output import MISUSED, fail
from purser.cli.read_api import (
    SchedulerCa,
    SchedulerNamespace,
    SchedulerTokenFile,
    SchedulerUrl,
    read_api_of,
    refuse_both_sources,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable

    from purser.kube import Client
    from purser.top.asking import ReadApi
    from purser.top.source import StateSource
    from purser.usage import Prometheus
    from purser.web import Feed, UsageHistory

    Serving = Callable[[asyncio.Event], Awaitable[None]]

HELP = """Show the cluster's GPUs, who holds them, and what waits and why, as web pages that update live.

The pages are served on this machine only: open the printed address in a browser. To see them from another machine,
forward the port, for example with ssh -L. Press Ctrl-C to stop.

With --prometheus, the pages also show how GPUs were used over time: which namespaces and pods hold GPUs without using
them, which GPUs are idle, and curves for each GPU and pod.

With --scheduler but without --token-file, everyone logs in with a token of their own and sees what the token allows.
Only then can --address be an address that other machines reach. Tokens are sent unencrypted: put a proxy with TLS in
front of the pages.

The command only reads the cluster and only needs permission to list and watch pods and nodes. It also works in clusters
that do not use Purser's scheduler. With --scheduler, the command queries the read API of Purser's scheduler instead
(see "Read API" in the documentation). If you add --namespace, permission to list the pods in that namespace is enough.

Exit code: 0 you stopped the command; 1 the cluster did not answer, or the port is taken; 2 wrong usage, such as a
kubeconfig that cannot be used.

Example: purser web

Example: purser web --port 0 --context prod
"""

DEFAULT_PORT = 8480


def web(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    port: Annotated[int, typer.Option(help="Port of the pages. 0 picks a free port.", min=0, max=65535)] = DEFAULT_PORT,
    address: Annotated[
        str, typer.Option(help="Address to listen on. Addresses other than loopback addresses require logins.")
    ] = "127.0.0.1",
    namespace: SchedulerNamespace = None,
    scheduler: SchedulerUrl = None,
    token_file: SchedulerTokenFile = None,
    certificate_authority: SchedulerCa = None,
    prometheus: Annotated[
        str | None, typer.Option(help="URL of a Prometheus server that scrapes Purser's metrics.", metavar="URL")
    ] = None,
    prometheus_token_file: Annotated[
        Path | None, typer.Option(help="File that holds a bearer token for Prometheus.")
    ] = None,
    prometheus_selector: Annotated[
        str, typer.Option(help='Label matchers that select this cluster in Prometheus, such as cluster="a".')
    ] = "",
) -> None:
    """Serve the pages until stopped."""
    has_logins = scheduler is not None and token_file is None
    refuse_both_sources(scheduler, kubeconfig, context)
    if namespace is not None and (scheduler is None or has_logins):
        fail("--namespace requires --scheduler and --token-file", MISUSED)
    if not _is_loopback(address) and not has_logins:
        fail(f"--address {address} requires logins: use --scheduler without --token-file", MISUSED)
    if prometheus is None and (prometheus_token_file is not None or prometheus_selector):
        fail("--prometheus-token-file and --prometheus-selector require --prometheus", MISUSED)
    from purser.cli.kernels import choose_kernels
    from purser.cli.serving import LogLevel, configure_logs, serve

    server = None if prometheus is None else _prometheus(prometheus, prometheus_token_file, prometheus_selector)
    options = _ServerOptions(address, port, server, prometheus_selector)
    configure_logs(LogLevel.WARNING)
    choose_kernels("numpy")  # importing numba takes longer than it saves
    if scheduler is not None and has_logins:
        serve(_serving_logins(scheduler, certificate_authority, options))
        return
    api = read_api_of(scheduler, token_file, certificate_authority, namespace)
    serve(_serving_one(kubeconfig, context, api, options))


def _is_loopback(address: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        fail(f"invalid value {address!r} for --address: must be an IP address", MISUSED)


@dataclass(frozen=True)
class _ServerOptions:
    """Where the pages are served, and what they show of the past."""

    address: str
    port: int
    prometheus: "Prometheus | None"
    selector: str

    @asynccontextmanager
    async def history(self) -> "AsyncIterator[UsageHistory | None]":
        """The use of GPUs over time; None without a Prometheus."""
        from purser.kube import SystemClock
        from purser.web import UsageHistory

        if self.prometheus is None:
            yield None
            return
        async with UsageHistory(self.prometheus, self.selector, SystemClock()) as found:
            yield found


def _prometheus(url: str, token_file: Path | None, selector: str) -> "Prometheus":
    from purser.cli.prometheus import prometheus_at, token_of
    from purser.web.history import QUERY_TIMEOUT_S

    return prometheus_at(url, token_of(token_file, "--prometheus-token-file"), selector, timeout_s=QUERY_TIMEOUT_S)


def _serving_one(
    kubeconfig: Path | None, context: str | None, api: "ReadApi | None", options: _ServerOptions
) -> "Serving":
    async def main(stop: "asyncio.Event") -> None:
        from purser.kube import Client, ClusterConfig, SystemClock
        from purser.top.asking import PolledScheduler, StateReader

        if api is not None:
            async with StateReader(api) as reader:
                await _serve(PolledScheduler(reader, api, SystemClock()), options, stop)
            return
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            await _serve(_build_source(client), options, stop)

    return main


async def _serve(source: "StateSource", options: _ServerOptions, stop: "asyncio.Event") -> None:
    from purser.kube import SystemClock
    from purser.kube.racing import until
    from purser.web import Feed, serving_pages

    clock = SystemClock()
    feed = Feed(source, clock)
    async with (
        options.history() as history,
        serving_pages(feed, clock, options.port, options.address, history=history) as url,
    ):
        _print_address(url)
        await until(feed.run(), stop.wait())


def _serving_logins(scheduler: str, ca_file: Path | None, options: _ServerOptions) -> "Serving":
    from purser.kube import SystemClock
    from purser.top.asking import PolledScheduler, ReadApi, StateReader
    from purser.web import Viewer, serving_logins

    clock = SystemClock()

    def api_of(viewer: Viewer) -> ReadApi:
        return ReadApi(scheduler, lambda: viewer.token, ca_file, viewer.namespace)

    @asynccontextmanager
    async def open_state_source(viewer: Viewer) -> "AsyncIterator[StateSource]":
        async with StateReader(api_of(viewer)) as reader:
            yield PolledScheduler(reader, api_of(viewer), clock, discards_when_refused=True)

    async def main(stop: "asyncio.Event") -> None:
        async with StateReader(api_of(Viewer("", ""))):  # says at once which option is wrong
            pass
        async with (
            options.history() as history,
            serving_logins(open_state_source, clock, options.address, options.port, history=history) as url,
        ):
            _print_address(url)
            await stop.wait()

    return main


def _print_address(url: str) -> None:
    print(f"The pages are at {url} (press Ctrl-C to stop)", flush=True)


@asynccontextmanager
async def pages_of(client: "Client") -> "AsyncIterator[str]":
    """The pages of a cluster on a free port while the context lasts, and their address."""
    import asyncio

    from purser.kube import SystemClock
    from purser.web import Feed, serving_pages

    clock = SystemClock()
    feed = Feed(_build_source(client), clock)
    following = asyncio.ensure_future(_follow_forever(feed))
    try:
        async with serving_pages(feed, clock, 0) as url:
            yield url
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow_forever(feed: "Feed") -> None:
    import structlog

    from purser.kube import KubeError

    try:
        await feed.run()
    except KubeError as error:
        structlog.get_logger("purser.web").error("The web pages cannot be updated", error=str(error))
    except Exception:
        structlog.get_logger("purser.web").exception("The web pages cannot be updated")


def _build_source(client: "Client") -> "StateSource":
    from purser.cli.why_text import explanation_lines
    from purser.kube import SystemClock
    from purser.top.following import FollowedCluster

    return FollowedCluster(client, SystemClock(), lambda found: list(explanation_lines(found)))
