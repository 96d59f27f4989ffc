"""The cluster: every process in order, and what a test asks of them."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from purser.lab.controlplane import commands
from purser.lab.controlplane.commands import LOOPBACK, Files, Ports
from purser.lab.controlplane.credentials import (
    Authority,
    User,
    write_kubeconfig,
    write_signing_keys,
    write_token_file,
)
from purser.lab.controlplane.process import Process, answers_ok, listens
from purser.lab.ports import free_ports

from . import kubelet, network
from .binaries import PROXY, Binaries
from .containers import Containerd
from .host import ensure_cgroups, ensure_shared_mounts, machine_lock

T = TypeVar("T")

_SYSTEM_USERS = {
    "admin": ("admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kube-proxy": ("system:kube-proxy", ()),
}


class RealCluster:
    """A control plane and one node on this machine, from `start` to `stop`; also a context manager, sync and async.

    Everything is plain processes and blocking calls; from a coroutine: `await asyncio.to_thread(cluster.method, ...)`.

    node_name: name of the node that kubelet registers.
    users: extra identities; `kubeconfig_for(user)` gives their kubeconfig. RBAC is on, they may do nothing at first.
    scheduler: fields of KubeSchedulerConfiguration (profiles, extenders, percentageOfNodesToScore ...); stock if empty.
    kubelet_config: fields of KubeletConfiguration to replace, e.g. {"cpuManagerPolicy": "static"}.
    disabled_controllers: names without the minus, e.g. ("nodelifecycle",).
    disabled_admission: admission plugins to turn off.
    node_grace: how long a node may stay silent before it counts as lost. An hour by default, so that nodes which exist
        in the API only stay Ready; give "15s" to see a dead node noticed.
    extra_args: more flags by process name, e.g. {"kube-apiserver": ["--v=4"]}; a repeated flag wins.
    logs: folder for the log files; below `folder`, and gone with it, when not given.
    wait_seconds: how long to wait for another cluster on this machine to end; there can be one at a time.

    `processes` has them by name: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd, kubelet,
    and after `start_services` kube-proxy.
    """

    device_plugin_dir = kubelet.DEVICE_PLUGIN_FOLDER
    kubelet_socket = kubelet.KUBELET_SOCKET
    device_checkpoint = kubelet.DEVICE_CHECKPOINT
    pod_resources_socket = kubelet.POD_RESOURCES_SOCKET

    def __init__(
        self,
        *,
        node_name: str = "real-0",
        users: Sequence[User] = (),
        scheduler: Mapping[str, Any] | None = None,
        kubelet_config: Mapping[str, Any] | None = None,
        disabled_controllers: Sequence[str] = (),
        disabled_admission: Sequence[str] = (),
        node_grace: str = "1h",
        extra_args: Mapping[str, Sequence[str]] | None = None,
        logs: Path | None = None,
        wait_seconds: float = 900,
    ) -> None:
        self.node_name = node_name
        self.binaries = Binaries.find()
        self.version = self.binaries.version
        self.processes: dict[str, Process] = {}
        self._users = tuple(users)
        self._scheduler = dict(scheduler or {})
        self._kubelet_config = dict(kubelet_config or {})
        self._disabled_controllers = tuple(disabled_controllers)
        self._disabled_admission = tuple(disabled_admission)
        self._node_grace = node_grace
        self._extra_args = dict(extra_args or {})
        self._logs = logs
        self._wait_seconds = wait_seconds
        self._cleanup = contextlib.ExitStack()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start everything; returns when the node is Ready and pods can be created in `default`.

        Raises StartError with the tail of a log, TimeoutError when the machine is taken, ForeignKubeletError.
        """
        # Short, because the path of a unix socket may have 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="purser-cluster-", dir="/tmp"))
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            stack.enter_context(machine_lock(self.folder, self._wait_seconds))
            ensure_cgroups()
            ensure_shared_mounts()
            network.create_bridge()
            self._prepare()
            stack.callback(self._stop_processes)
            self._start_containerd()
            self._start_etcd()
            self._start_apiserver()
            # Already now: kubelet 1.20 looks for Docker for five seconds before it needs the API server.
            self._run_kubelet()
            self._wait_process("kube-apiserver")
            self._start_controller_manager()
            self._start_scheduler()
            self._wait_everything()
            self._cleanup = stack.pop_all()
        return self

    def stop(self) -> None:
        """Stop everything and leave the machine as it was."""
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self.stop)

    def start_services(self) -> None:
        """Run kube-proxy, if it does not run yet: from then on Services are reached, from pods and from this machine.

        Raises MissingBinariesError, and StartError on a kernel without netfilter.
        """
        if "kube-proxy" in self.processes:
            return
        healthz, metrics = free_ports(2)
        config = self.folder / "kube-proxy.json"
        kubeconfig = self._kubeconfigs["kube-proxy"]
        config.write_text(json.dumps(network.proxy_config(kubeconfig, self.node_name, healthz, metrics)))
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        argv = [self.binaries.path(PROXY), f"--config={config}"]
        process = self.processes["kube-proxy"] = Process("kube-proxy", argv, self.logs, env={"PATH": path})
        cleanup = [argv[0], "--cleanup"]
        self._cleanup.callback(subprocess.run, cleanup, env={"PATH": path}, capture_output=True, timeout=60)
        self._cleanup.callback(process.stop)
        process.start()
        process.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{healthz}/healthz"))

    # -- access --------------------------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{LOOPBACK}:{self.ports.apiserver}"

    def kubeconfig_for(self, user: User) -> Path:
        """Kubeconfig of one of the users given at construction, or of any token the API server takes."""
        path = self.folder / f"{user.name.replace(':', '-').replace('/', '-')}.kubeconfig"
        return write_kubeconfig(path, self.server, self.files.ca.cert, user.token)

    def service_account_kubeconfig(self, namespace: str, name: str, node: str = "") -> Path:
        """Kubeconfig with a fresh token of an account that exists; bound to a node, where API servers do that."""
        bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node}}
        spec = bound if node and self.version >= (1, 31) else {}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        reply = json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(request)))
        return self.kubeconfig_for(User(reply["status"]["token"], f"{namespace}/{name}"))

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl, as the administrator unless told otherwise; raises RuntimeError with what it printed."""
        command = [self.binaries.path("kubectl"), f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments]
        # HOME below the folder: kubectl caches what it discovers, and the next cluster may be another generation.
        result = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=180, env={"HOME": str(self.folder)}
        )
        if result.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def get(self, resource: str, name: str = "", namespace: str = "default") -> Any:
        """One object as a dictionary, or the list when no name is given."""
        return json.loads(self.kubectl("get", resource, *([name] if name else []), f"-n{namespace}", "-ojson"))

    def create(self, *manifests: Mapping[str, Any]) -> None:
        """Create objects."""
        self.kubectl("create", "-f", "-", stdin=_as_list(manifests))

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", stdin=_as_list(manifests))

    def delete(self, *arguments: str) -> None:
        """`kubectl delete ...` and wait until it is gone; what does not exist is no error."""
        self.kubectl("delete", "--ignore-not-found", "--wait=true", *arguments)

    def create_namespace(self, name: str) -> None:
        """Create a namespace and wait until pods may be created in it."""
        self.kubectl("create", "namespace", name)
        self._wait_default_account(name)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def wait_until(self, what: str, probe: Callable[[], T], timeout_seconds: float = 60) -> T:
        """Poll until `probe` returns something true, and return that; raises TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        while not (value := probe()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_seconds} s still not: {what}")
            time.sleep(0.2)
        return value

    def wait_pod(
        self, name: str, namespace: str = "default", *, phase: str = "Running", timeout_seconds: float = 60
    ) -> Any:
        """Wait for a pod's phase and return the pod.

        Raises TimeoutError with its status and events, at once when it ended in another way.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            pod = self.get("pod", name, namespace)
            reached = pod["status"].get("phase")
            if reached == phase:
                return pod
            if time.monotonic() > deadline or reached in ("Succeeded", "Failed"):
                events = self.kubectl("get", "events", f"-n{namespace}", f"--field-selector=involvedObject.name={name}")
                status = json.dumps(pod["status"], indent=1)
                raise TimeoutError(f"pod {namespace}/{name} is {reached}, not {phase}:\n{status}\n{events}")
            time.sleep(0.2)

    # -- containers ----------------------------------------------------------------------------------------------------

    def container_spec(self, namespace: str, pod: str, container: str = "main") -> Any:
        """OCI runtime spec of the newest incarnation: process, mounts, linux.devices ..., as the runtime got it."""
        return self.containerd.info(self._container_id(namespace, pod, container))["Spec"]

    def container_env(self, namespace: str, pod: str, container: str = "main") -> dict[str, str]:
        """Environment the container was started with."""
        pairs = self.container_spec(namespace, pod, container)["process"]["env"]
        return dict(pair.split("=", 1) for pair in pairs)

    def container_pid(self, namespace: str, pod: str, container: str = "main") -> int:
        """Process id, on this machine, of a running container's first process."""
        return self.containerd.pid(self._container_id(namespace, pod, container))

    # -- faults and changes --------------------------------------------------------------------------------------------

    def restart_scheduler(self, scheduler: Mapping[str, Any] | None = None) -> None:
        """Restart kube-scheduler alone, with another configuration when one is given."""
        if scheduler is not None:
            self._scheduler = dict(scheduler)
        self.processes["kube-scheduler"].stop()
        self._start_scheduler()
        self._wait_process("kube-scheduler")

    def restart_kubelet(self, kubelet_config: Mapping[str, Any] | None = None) -> None:
        """Restart kubelet; running pods stay. A new configuration also drops the state of CPU and memory manager."""
        self.processes["kubelet"].stop()
        self.start_kubelet(kubelet_config)

    def kill_kubelet(self) -> None:
        """kill -9, without a restart."""
        self.processes["kubelet"].kill()

    def start_kubelet(self, kubelet_config: Mapping[str, Any] | None = None) -> None:
        """Start kubelet after `kill_kubelet`; returns when it is healthy and takes device plugins again."""
        if kubelet_config is not None:
            self._kubelet_config = dict(kubelet_config)
            kubelet.forget_policies()
        self._run_kubelet()
        self._wait_kubelet()

    def restart(self, name: str) -> None:
        """Restart etcd, kube-apiserver, kube-controller-manager or containerd, and wait until it answers."""
        # The API server would wait a minute for its watchers to leave.
        self.processes[name].stop(grace_seconds=2)
        self.processes[name].start()
        self._wait_process(name)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.logs = self._logs or self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        ports = free_ports(8)
        self.ports, self.kubelet_ports = Ports(*ports[:6]), kubelet.KubeletPorts(*ports[6:])
        self.authority = Authority(self.folder)
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", self.node_name]
        self.files = Files(
            folder=self.folder,
            ca=self.authority.files,
            serving=self.authority.serving(
                "serving", names, [LOOPBACK, network.NODE_ADDRESS, commands.SERVICE_ADDRESS]
            ),
            kubelet_client=self.authority.client("kube-apiserver-kubelet-client", ["system:masters"]),
            signing=write_signing_keys(self.folder),
            token_file=self.folder / "tokens.csv",
        )
        known = dict(_SYSTEM_USERS) | {"kubelet": (f"system:node:{self.node_name}", ("system:nodes",))}
        identities = {key: User(secrets.token_hex(16), name, groups) for key, (name, groups) in known.items()}
        write_token_file(self.files.token_file, [*identities.values(), *self._users])
        self._kubeconfigs = {key: self.kubeconfig_for(user) for key, user in identities.items()}
        self.kubeconfig = self._kubeconfigs["admin"]
        self.admin_token = identities["admin"].token
        self.ca_file = self.files.ca.cert

    def _start_etcd(self) -> None:
        self._run("etcd", commands.etcd_arguments(self.files, self.ports))
        self._wait_process("etcd")

    def _start_apiserver(self) -> None:
        disabled_admission = list(self._disabled_admission)
        if {"nodelifecycle", "node-lifecycle-controller"} & set(self._disabled_controllers):
            # The plugin taints new nodes as not ready; only that controller would ever take the taint away.
            disabled_admission.append("TaintNodesByCondition")
        arguments = commands.apiserver_arguments(self.files, self.ports, disabled_admission)
        # Pods come by the bridge, to the address that the Service `kubernetes` publishes.
        self._run("kube-apiserver", [*arguments, "--bind-address=0.0.0.0", "--endpoint-reconciler-type=lease"])

    def _start_controller_manager(self) -> None:
        arguments = commands.controller_manager_arguments(
            self.files,
            self.ports,
            self._kubeconfigs["kube-controller-manager"],
            self.version,
            self._disabled_controllers,
            self._node_grace,
        )
        self._run("kube-controller-manager", arguments)

    def _start_scheduler(self) -> None:
        config = self.folder / "scheduler.json"
        kubeconfig = self._kubeconfigs["kube-scheduler"]
        wanted = commands.scheduler_config(self.version, self.ports, kubeconfig, self._scheduler)
        config.write_text(json.dumps(wanted))
        self._run("kube-scheduler", commands.scheduler_arguments(self.files, self.ports, config))

    def _start_containerd(self) -> None:
        cni = network.write_cni_config(self.folder / "cni")
        self.containerd = Containerd(self.binaries, self.folder / "containerd", self.logs, cni)
        self.processes["containerd"] = self.containerd.process
        self.containerd.start()

    def _wait_everything(self) -> None:
        self._wait_process("kube-controller-manager")
        self._wait_process("kube-scheduler")
        self._wait_kubelet()
        self._wait_default_account("default")
        self.wait_until(f"node {self.node_name} is Ready", self._node_is_ready)

    def _run_kubelet(self) -> None:
        config = self.folder / "kubelet.json"
        runtime = self.containerd.socket
        settings = kubelet.kubelet_config(self.version, self.files, self.kubelet_ports, runtime, self._kubelet_config)
        config.write_text(json.dumps(settings))
        arguments = kubelet.kubelet_arguments(
            self.version, config, self._kubeconfigs["kubelet"], self.node_name, runtime, self.folder
        )
        self._run("kubelet", arguments)

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        argv = [self.binaries.path(name), *arguments, *self._extra_args.get(name, ())]
        self.processes[name] = Process(name, argv, self.logs)
        self.processes[name].start()

    def _stop_processes(self) -> None:
        order = ("kubelet", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
        for name in order:
            if name in self.processes:
                self.processes[name].stop()
        if "containerd" in self.processes:
            if self.processes["containerd"].pid is not None:
                self.containerd.remove_pods()
            self.processes["containerd"].stop()

    def _wait_process(self, name: str) -> None:
        ports = self.ports
        probes = {
            "etcd": lambda: answers_ok(f"http://{LOOPBACK}:{ports.etcd}/health"),
            "kube-apiserver": lambda: answers_ok(f"{self.server}/readyz", self.ca_file, self.admin_token),
            "kube-controller-manager": lambda: self._healthy(ports.controller_manager),
            "kube-scheduler": lambda: self._healthy(ports.scheduler),
            "containerd": lambda: self.containerd.answers(),
        }
        self.processes[name].wait_ready(probes[name])

    def _healthy(self, port: int) -> bool:
        return answers_ok(f"https://{LOOPBACK}:{port}/healthz", self.ca_file)

    def _wait_kubelet(self) -> None:
        healthz = f"http://{LOOPBACK}:{self.kubelet_ports.healthz}/healthz"
        self.processes["kubelet"].wait_ready(lambda: listens(self.kubelet_socket) and answers_ok(healthz))

    def _wait_default_account(self, namespace: str) -> None:
        """A pod is refused until its namespace has the service account `default`, before 1.24 also with its token."""

        def usable() -> bool:
            accounts = self.get("serviceaccounts", namespace=namespace)["items"]
            names = [each for each in accounts if each["metadata"]["name"] == "default"]
            return bool(names) and (self.version >= (1, 24) or bool(names[0].get("secrets")))

        self.wait_until(f"namespace {namespace} has its default service account", usable)

    def _node_is_ready(self) -> bool:
        nodes = [each for each in self.get("nodes")["items"] if each["metadata"]["name"] == self.node_name]
        conditions = nodes[0]["status"].get("conditions", []) if nodes else []
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return ready and not nodes[0]["spec"].get("taints")

    def _container_id(self, namespace: str, pod: str, container: str) -> str:
        ids = self.containerd.container_ids(namespace, pod, container)
        if not ids:
            raise LookupError(f"no container {container} of pod {namespace}/{pod} on this node")
        return ids[-1]


def _as_list(manifests: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
