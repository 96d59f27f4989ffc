"""A real control plane: etcd and kube-apiserver, with kube-controller-manager and kube-scheduler where they are."""

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import structlog

from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.resources import untyped_resource
from purser.lab.apiserver import PodLogs
from purser.lab.controlplane import commands, kubeletapi
from purser.lab.controlplane.commands import LOOPBACK, Ports, SharedFiles
from purser.lab.controlplane.credentials import (
    CertificateAuthority,
    TokenUser,
    write_kubeconfig,
    write_signing_keys,
    write_token_file,
)
from purser.lab.controlplane.plane import ADMIN
from purser.lab.controlplane.process import Process, is_answering
from purser.lab.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER, Programs
from purser.lab.ports import free_ports

CONTROLLERS_USER = "system:kube-controller-manager"
MASTERS = ("system:masters",)
_SERVICE_ACCOUNTS = untyped_resource("", "v1", "serviceaccounts", "ServiceAccount")
_NODE_GRACE = "40s"
"""Kubernetes' own default for most of its versions; emulated nodes renew their leases every ten seconds."""
_WATCH_S = 1.0
_READINESS_POLL_S = 0.1

log = structlog.get_logger("purser.lab")


@dataclass(frozen=True)
class SchedulerProcess:
    """One kube-scheduler: the user it logs in as, and its KubeSchedulerConfiguration but for what every run needs."""

    name: str
    user: str
    config: Mapping[str, Any]


class RealControlPlane:
    """Processes on free ports of the loopback address, below one folder; `real` names what runs once it is entered.

    users: all users, with their groups, except for the administrator. RBAC and the node authorizer
    are on. schedulers: what kube-scheduler is started for, where there is one. controllers: the lab's name for
    kube-controller-manager. Raises StartError with the tail of a log when a process does not start.
    """

    def __init__(
        self,
        programs: Programs,
        folder: Path,
        port: int,
        users: Mapping[str, Sequence[str]],
        schedulers: Sequence[SchedulerProcess],
        *,
        api_server: str,
        controllers: str,
    ) -> None:
        self._programs = programs
        self._folder = folder
        self._logs = folder / "logs"
        self._users = {ADMIN: MASTERS} | {name: tuple(groups) for name, groups in users.items()}
        self._schedulers = tuple(schedulers) if programs.has(SCHEDULER) else ()
        self._controllers = controllers
        self._port = port
        self._stack = AsyncExitStack()
        self._processes: list[Process] = []
        self.real: dict[str, str] = {api_server: self._program_title(API_SERVER)}

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{LOOPBACK}:{self._ports.apiserver}"

    def kubeconfig(self, user: str) -> Path:
        """How a user logs in; KeyError for one who was not named at the start."""
        return self._kubeconfigs[user]

    async def serve_logs(self, logs: PodLogs) -> int:
        """Be the kubelet that the API server asks for logs, on behalf of every node."""
        client = await self._stack.enter_async_context(Client(ClusterConfig.load(self.kubeconfig(ADMIN))))
        serving = kubeletapi.serving(client, logs, self._files.serving, self._files.ca)
        return await self._stack.enter_async_context(serving)

    async def __aenter__(self) -> Self:
        """Start everything; returns when pods can be created in `default`."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop everything, the last one first."""
        await self._stack.aclose()

    async def _start(self) -> None:
        self._prepare()
        await self._run(ETCD, ETCD, commands.etcd_arguments(self._files, self._ports), self._etcd_answers)
        disabled = () if self._has_controllers else ("ServiceAccount", "TaintNodesByCondition")
        arguments = commands.apiserver_arguments(self._files, self._ports, disabled)
        await self._run(API_SERVER, API_SERVER, arguments, self._api_server_answers)
        try:
            async with asyncio.TaskGroup() as group:
                if self._has_controllers:
                    group.create_task(self._run_controllers())
                for place, scheduler in enumerate(self._schedulers):
                    group.create_task(self._run_scheduler(place, scheduler))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        watching = asyncio.create_task(self._watch(), name="watch over the control plane")
        self._stack.push_async_callback(_cancel, watching)

    @property
    def _has_controllers(self) -> bool:
        return self._programs.has(CONTROLLER_MANAGER)

    def _prepare(self) -> None:
        folder = self._folder / "control-plane"
        for path in (folder, self._logs):
            path.mkdir(parents=True, exist_ok=True)
        ports = Ports(*free_ports(6))
        self._ports = replace(ports, apiserver=self._port) if self._port else ports
        authority = CertificateAuthority(folder)
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        self._files = SharedFiles(
            folder=folder,
            ca=authority.files,
            serving=authority.serving("serving", names, [LOOPBACK, commands.SERVICE_ADDRESS]),
            kubelet_client=authority.client("kube-apiserver-kubelet-client", MASTERS),
            signing=write_signing_keys(folder),
            token_file=folder / "tokens.csv",
        )
        users = [TokenUser(secrets.token_hex(16), name, groups) for name, groups in self._users.items()]
        write_token_file(self._files.token_file, users)
        self._token = users[0].token
        self._kubeconfigs = {
            user.name: write_kubeconfig(self._kubeconfig_path(place), self.url, self._files.ca.cert, user.token)
            for place, user in enumerate(users)
        }

    def _kubeconfig_path(self, place: int) -> Path:
        return self._folder / (f"kubeconfig-{place}" if place else "kubeconfig")

    async def _run_controllers(self) -> None:
        arguments = commands.controller_manager_arguments(
            self._files, self._ports, self.kubeconfig(CONTROLLERS_USER), self._programs.version, (), _NODE_GRACE
        )
        healthy = partial(self._healthy, self._ports.controller_manager)
        await self._run(CONTROLLER_MANAGER, CONTROLLER_MANAGER, arguments, healthy)
        self.real[self._controllers] = self._program_title(CONTROLLER_MANAGER)
        async with Client(ClusterConfig.load(self.kubeconfig(ADMIN))) as client:
            await wait_until_pods_allowed(client, "default")

    async def _run_scheduler(self, place: int, scheduler: SchedulerProcess) -> None:
        # Each on two ports of its own; those of the first were taken with the others.
        https, http = free_ports(2) if place else (self._ports.scheduler, self._ports.scheduler_http)
        ports = replace(self._ports, scheduler=https, scheduler_http=http)
        path = self._files.folder / f"{SCHEDULER}-{place}.json"
        config = commands.scheduler_config(
            self._programs.version, ports, self.kubeconfig(scheduler.user), scheduler.config
        )
        path.write_text(json.dumps(config))
        arguments = commands.scheduler_arguments(self._files, ports, path)
        await self._run(SCHEDULER, f"{SCHEDULER}-{place}", arguments, partial(self._healthy, https))
        self.real[scheduler.name] = self._program_title(SCHEDULER)

    async def _run(self, program: str, name: str, arguments: Sequence[str], probe: Callable[[], bool]) -> None:
        process = Process(name, [self._programs.path(program), *arguments], self._logs)
        self._stack.push_async_callback(_stop, process)
        process.start()
        await asyncio.to_thread(process.wait_ready, probe)
        self._processes.append(process)

    def _etcd_answers(self) -> bool:
        return is_answering(f"http://{LOOPBACK}:{self._ports.etcd}/health")

    def _api_server_answers(self) -> bool:
        return is_answering(f"{self.url}/readyz", self._files.ca.cert, self._token)

    def _healthy(self, port: int) -> bool:
        return is_answering(f"https://{LOOPBACK}:{port}/healthz", self._files.ca.cert)

    async def _watch(self) -> None:
        """Say once of every process that it ended: nothing here starts it again."""
        while self._processes:
            for process in [each for each in self._processes if each.pid is None]:
                log.error("A control plane process exited", part=process.name, log=process.tail())
                self._processes.remove(process)
            await asyncio.sleep(_WATCH_S)

    def _program_title(self, program: str) -> str:
        major, minor = self._programs.version
        return f"{program} {major}.{minor}"


async def wait_until_pods_allowed(client: Client, namespace: str) -> None:
    """Wait until pods are not refused any more: a namespace needs its service account, before 1.24 with a token.

    For a control plane with kube-controller-manager, which makes both.
    """
    needs_token = await _version(client) < (1, 24)
    while True:
        accounts = (await client.list(_SERVICE_ACCOUNTS, namespace)).items
        default = [each for each in accounts if each["metadata"]["name"] == "default"]
        if default and (not needs_token or default[0].get("secrets")):
            return
        await asyncio.sleep(_READINESS_POLL_S)


async def _version(client: Client) -> tuple[int, int]:
    found = await client.version()
    return int(found["major"]), int(found["minor"].rstrip("+"))


async def _stop(process: Process) -> None:
    """Nothing of theirs outlives them, and kube-apiserver would wait a minute for watchers to leave."""
    await asyncio.shield(asyncio.to_thread(process.kill))


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
