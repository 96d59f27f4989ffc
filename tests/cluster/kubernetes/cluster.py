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
from purser.lab.controlplane.commands import LOOPBACK, Ports, SharedFiles
from purser.lab.controlplane.credentials import (
    CertificateAuthority,
    TokenUser,
    write_kubeconfig,
    write_signing_keys,
    write_token_file,
)
from purser.lab.controlplane.process import Process, is_answering
from purser.lab.ports import free_ports

from . import keeper, machine, manifests, network
from .binaries import PROXY, Binaries
from .containers import Containerd
from .node import Node
from .reader import Reader
from .service import Service

T = TypeVar("T")

_SYSTEM_USERS = {
    "admin": ("admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kube-proxy": ("system:kube-proxy", ()),
}


class RealCluster:
    """A control plane and nodes on this machine, from `start` to `stop`; also a context manager, sync and async.

    Everything is plain processes and blocking calls; from a coroutine: `await asyncio.to_thread(cluster.method, ...)`.

    node_name: name of the first node, the one that methods mean where they name none.
    nodes: how many there are; the others are called real-1 and so on. `add_node` adds one later.
    users: extra identities; `kubeconfig_for(user)` gives their kubeconfig. RBAC is on, they may do nothing at first.
    scheduler: fields of KubeSchedulerConfiguration (profiles, extenders, percentageOfNodesToScore ...); stock if empty.
    kubelet_config: fields of KubeletConfiguration to replace, e.g. {"cpuManagerPolicy": "static"}.
    disabled_controllers: names without the minus, e.g. ("nodelifecycle",).
    disabled_admission: admission plugins to turn off.
    node_grace: how long a node may stay silent before it counts as lost. An hour by default, so that nodes which exist
        in the API only stay Ready; give "15s" to see a dead node noticed.
    extra_args: more flags by process name, e.g. {"kube-apiserver": ["--v=4"]}; a repeated flag wins.
    logs: folder for the log files; below `folder`, and gone with it, when not given.

    `processes` has them by name: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, the first node's
    containerd and kubelet, and after `start_services` kube-proxy. `nodes` has every node by name. The process that
    starts a cluster moves to a network of its own (`machine.enter`), where there is one cluster at a time.
    """

    def __init__(
        self,
        *,
        node_name: str = "real-0",
        nodes: int = 1,
        users: Sequence[TokenUser] = (),
        scheduler: Mapping[str, Any] | None = None,
        kubelet_config: Mapping[str, Any] | None = None,
        disabled_controllers: Sequence[str] = (),
        disabled_admission: Sequence[str] = (),
        node_grace: str = "1h",
        extra_args: Mapping[str, Sequence[str]] | None = None,
        logs: Path | None = None,
    ) -> None:
        self.node_name = node_name
        self.binaries = Binaries.find()
        self.version = self.binaries.version
        self.processes: dict[str, Process] = {}
        self.nodes: dict[str, Node] = {}
        self._names = [node_name, *(f"real-{number}" for number in range(1, network.MOST_NODES))]
        self._count = nodes
        self._users = tuple(users)
        self._scheduler = dict(scheduler or {})
        self._kubelet_config = dict(kubelet_config or {})
        self._disabled_controllers = tuple(disabled_controllers)
        self._disabled_admission = tuple(disabled_admission)
        self._node_grace = node_grace
        self._extra_args = dict(extra_args or {})
        self._logs = logs
        self._cleanup = contextlib.ExitStack()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start everything; returns when the node is Ready and pods can be created in `default`.

        Raises StartError with the tail of a log, NamespacesError where a cluster cannot be kept apart.
        """
        self._run_name = machine.enter()
        self.folder = Path(tempfile.mkdtemp(prefix=self._run_name, dir=keeper.FOLDERS))
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            network.create_bridge(0)
            stack.callback(network.delete_bridge)
            self._prepare()
            stack.callback(self._stop_processes)
            stack.callback(self._stop_nodes)
            for name in self._names[: self._count]:
                self._start_node(name)
            self._start_etcd()
            self._start_apiserver()
            # Already now: kubelet 1.20 looks for Docker for five seconds before it needs the API server.
            for node in self.nodes.values():
                self._run_kubelet(node)
            self._wait_process("kube-apiserver")
            self.create(*manifests.kubelets_read_pods())
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
        machine.enter()  # not in another thread
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
        # Another cluster of this process has the same network.
        cleanup = [argv[0], "--cleanup"]
        self._cleanup.callback(subprocess.run, cleanup, env={"PATH": path}, capture_output=True, timeout=60)
        self._cleanup.callback(process.stop)
        process.start()
        process.wait_ready(lambda: is_answering(f"http://{LOOPBACK}:{healthz}/healthz"))

    def add_node(self) -> Node:
        """Start another node; returns when it is Ready. Raises StartError."""
        node = self._start_node(next(name for name in self._names if name not in self.nodes))
        try:
            self._run_kubelet(node)
            self._wait_node(node)
        except BaseException:
            self.remove_node(node)
            raise
        return node

    def remove_node(self, node: Node) -> None:
        """End a node and everything on it, and remove it from the cluster with its pods."""
        del self.nodes[node.name]
        node.stop()
        self.delete("node", node.name)
        self.kubectl(
            *("delete", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node.name}"),
            *("--force", "--grace-period=0", "--wait=true"),
        )

    # -- access --------------------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The first one."""
        return self.nodes[self.node_name]

    @property
    def containerd(self) -> Containerd:
        """The first node's."""
        return self.node.containerd

    @property
    def kubelet_folder(self) -> Path:
        """What the first node calls /var/lib/kubelet; what the following name lies in it."""
        return self.node.kubelet_folder

    @property
    def device_plugin_dir(self) -> Path:
        """Where plugins put their sockets."""
        return self.node.device_plugin_dir

    @property
    def kubelet_socket(self) -> Path:
        """Where plugins register."""
        return self.node.kubelet_socket

    @property
    def device_checkpoint(self) -> Path:
        """What kubelet remembers of devices."""
        return self.node.device_checkpoint

    @property
    def pod_resources_socket(self) -> Path:
        """Who has which devices."""
        return self.node.pod_resources_socket

    @property
    def server(self) -> str:
        """URL of the API server, from every node as well."""
        return f"https://{network.NODE_ADDRESS}:{self.ports.apiserver}"

    def kubeconfig_for(self, user: TokenUser) -> Path:
        """Kubeconfig of one of the users given at construction, or of any token the API server takes."""
        path = self.folder / f"{user.name.replace(':', '-').replace('/', '-')}.kubeconfig"
        return write_kubeconfig(path, self.server, self.files.ca.cert, user.token)

    def service_account_kubeconfig(self, namespace: str, name: str, node: str = "", pod: str = "") -> Path:
        """Kubeconfig with a fresh token of an account that exists; bound to a pod that exists, or to a node, where API
        servers do that, or to a pod there, where they say so of a token."""
        request: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        if pod:
            request["spec"] = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod}}
        elif node and self.version >= (1, 31):
            request["spec"] = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node}}
        elif node and self.version >= (1, 22):
            made = manifests.busybox_pod(f"{name}-{node}", namespace=namespace, serviceAccountName=name, nodeName=node)
            self.apply(made)
            request["spec"] = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": made["metadata"]["name"]}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        reply = json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(request)))
        return self.kubeconfig_for(
            TokenUser(reply["status"]["token"], "/".join(filter(None, (namespace, name, node, pod))))
        )

    def _webhooks_away(self) -> str:
        """What the API server logged last of webhooks that it could not ask: kubectl does not hear of it."""
        log = self.logs / "kube-apiserver.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        away = [line for line in lines if "failed calling webhook" in line.lower()]
        return "".join(f"\nkube-apiserver: {line}" for line in away[-5:])

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl, as the administrator unless another user is given; raises RuntimeError with what it printed."""
        command = [self.binaries.path("kubectl"), f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments]
        # HOME below the folder: kubectl caches what it discovers, and the next cluster may be another generation.
        environment = {"HOME": str(self.folder), "GOGC": "off"}
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, env=environment)
        if result.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}{self._webhooks_away()}")
        return result.stdout

    def get(self, resource: str, name: str = "", namespace: str = "default", selector: str = "") -> Any:
        """One object as a dictionary, or the list when no name is given; the resource is named as for kubectl.

        Raises RuntimeError with what the API server says.
        """
        path = self._reader.path(resource, name, namespace)
        return self._reader.read(path, **({"labelSelector": selector} if selector else {}))

    def create(self, *manifests: Mapping[str, Any]) -> None:
        """Create objects."""
        self.kubectl("create", "-f", "-", stdin=_as_list(manifests))

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", stdin=_as_list(manifests))

    def delete(self, *arguments: str) -> None:
        """`kubectl delete ...` and wait until it is gone; what does not exist is not an error."""
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
        containerd, found = self._container(namespace, pod, container)
        return containerd.info(found)["Spec"]

    def container_env(self, namespace: str, pod: str, container: str = "main") -> dict[str, str]:
        """Environment the container was started with."""
        pairs = self.container_spec(namespace, pod, container)["process"]["env"]
        return dict(pair.split("=", 1) for pair in pairs)

    def container_pid(self, namespace: str, pod: str, container: str = "main") -> int:
        """Process id, on this machine, of a running container's first process."""
        containerd, found = self._container(namespace, pod, container)
        return containerd.pid(found)

    # -- faults and changes --------------------------------------------------------------------------------------------

    def restart_scheduler(self, scheduler: Mapping[str, Any] | None = None) -> None:
        """Restart kube-scheduler alone, with another configuration when one is given."""
        if scheduler is not None:
            self._scheduler = dict(scheduler)
        self.processes["kube-scheduler"].stop()
        self._start_scheduler()
        self._wait_process("kube-scheduler")

    def restart_kubelet(self, kubelet_config: Mapping[str, Any] | None = None, node: str = "") -> None:
        """Restart kubelet; running pods stay. A new configuration also drops the state of CPU and memory manager."""
        self._node(node).processes["kubelet"].stop()
        self.start_kubelet(kubelet_config, node)

    def kill_kubelet(self, node: str = "") -> None:
        """kill -9, without a restart."""
        self._node(node).processes["kubelet"].kill()

    def start_kubelet(self, kubelet_config: Mapping[str, Any] | None = None, node: str = "") -> None:
        """Start kubelet after `kill_kubelet`; returns when it is healthy and takes device plugins again."""
        found = self._node(node)
        if kubelet_config is not None:
            found.kubelet_config = dict(kubelet_config)
            found.forget_policies()
        self._run_kubelet(found)
        found.wait_kubelet()

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
        self.ports = Ports(*free_ports(6))
        self.authority = CertificateAuthority(self.folder)
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", *self._names]
        addresses = map(network.node_address, range(network.MOST_NODES))
        self.files = SharedFiles(
            folder=self.folder,
            ca=self.authority.files,
            serving=self.authority.serving("serving", names, [LOOPBACK, *addresses, commands.SERVICE_ADDRESS]),
            kubelet_client=self.authority.client("kube-apiserver-kubelet-client", ["system:masters"]),
            signing=write_signing_keys(self.folder),
            token_file=self.folder / "tokens.csv",
        )
        # The API server reads the tokens once: those of nodes to come are among them.
        known = dict(_SYSTEM_USERS) | {each: (f"system:node:{each}", ("system:nodes",)) for each in self._names}
        identities = {key: TokenUser(secrets.token_hex(16), name, groups) for key, (name, groups) in known.items()}
        write_token_file(self.files.token_file, [*identities.values(), *self._users])
        self._kubeconfigs = {key: self.kubeconfig_for(user) for key, user in identities.items()}
        self.kubeconfig = self._kubeconfigs["admin"]
        self.admin_token = identities["admin"].token
        self.ca_file = self.files.ca.cert
        self._reader = Reader(self.server, self.ca_file, self.admin_token)

    def _start_etcd(self) -> None:
        self._run("etcd", commands.etcd_arguments(self.files, self.ports))
        self._wait_process("etcd")

    def _start_apiserver(self) -> None:
        disabled_admission = list(self._disabled_admission)
        if {"nodelifecycle", "node-lifecycle-controller"} & set(self._disabled_controllers):
            # The plugin taints new nodes as not ready; only that controller would ever take the taint away.
            disabled_admission.append("TaintNodesByCondition")
        arguments = commands.apiserver_arguments(self.files, self.ports, disabled_admission)
        # Nodes and their pods come by the bridge, to the address that the Service `kubernetes` publishes.
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

    def _start_node(self, name: str) -> Node:
        number = self._names.index(name)
        node = self.nodes[name] = Node(number, name, self._run_name, self.folder / name, self.logs, self.binaries)
        node.kubelet_config = self._kubelet_config
        try:
            node.start()
        except BaseException:
            del self.nodes[name]
            node.stop()
            raise
        if number == 0:
            self.processes["containerd"] = node.processes["containerd"]
        return node

    def _wait_everything(self) -> None:
        self._wait_process("kube-controller-manager")
        self._wait_process("kube-scheduler")
        self._wait_default_account("default")
        for node in self.nodes.values():
            self._wait_node(node)

    def _wait_node(self, node: Node) -> None:
        node.wait_kubelet()
        self.wait_until(f"node {node.name} is Ready", lambda: self._node_is_ready(node.name))

    def _run_kubelet(self, node: Node) -> None:
        extra = self._extra_args.get("kubelet", ())
        node.run_kubelet(self.version, self.files, self._kubeconfigs[node.name], extra)
        if node.name == self.node_name:
            self.processes["kubelet"] = node.processes["kubelet"]

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        argv = [self.binaries.path(name), *arguments, *self._extra_args.get(name, ())]
        self.processes[name] = Service(name, argv, self.logs)
        self.processes[name].start()

    def _stop_nodes(self) -> None:
        for node in self.nodes.values():
            node.stop()
        self.nodes.clear()

    def _stop_processes(self) -> None:
        """Nothing of theirs is needed any more."""
        for process in self.processes.values():
            process.kill()

    def _wait_process(self, name: str) -> None:
        ports = self.ports
        probes = {
            "etcd": lambda: is_answering(f"http://{LOOPBACK}:{ports.etcd}/health"),
            "kube-apiserver": lambda: is_answering(f"{self.server}/readyz", self.ca_file, self.admin_token),
            "kube-controller-manager": lambda: self._healthy(ports.controller_manager),
            "kube-scheduler": lambda: self._healthy(ports.scheduler),
            "containerd": lambda: self.node.containerd.answers(),
        }
        self.processes[name].wait_ready(probes[name])

    def _healthy(self, port: int) -> bool:
        return is_answering(f"https://{LOOPBACK}:{port}/healthz", self.ca_file)

    def _wait_default_account(self, namespace: str) -> None:
        """A pod is refused until its namespace has the service account `default`, before 1.24 also with its token."""

        def usable() -> bool:
            accounts = self.get("serviceaccounts", namespace=namespace)["items"]
            names = [each for each in accounts if each["metadata"]["name"] == "default"]
            return bool(names) and (self.version >= (1, 24) or bool(names[0].get("secrets")))

        self.wait_until(f"namespace {namespace} has its default service account", usable)

    def _node_is_ready(self, name: str) -> bool:
        nodes = [each for each in self.get("nodes")["items"] if each["metadata"]["name"] == name]
        conditions = nodes[0]["status"].get("conditions", []) if nodes else []
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return ready and not nodes[0]["spec"].get("taints")

    def _node(self, name: str) -> Node:
        return self.nodes[name or self.node_name]

    def _container(self, namespace: str, pod: str, container: str) -> tuple[Containerd, str]:
        """Where the newest incarnation is, and its id there: nodes keep the dead of earlier pods of that name."""
        made = [
            (node.containerd.info(each)["CreatedAt"], node.name, each)
            for node in self.nodes.values()
            for each in node.containerd.container_ids(namespace, pod, container)[-1:]
        ]
        if made:
            _, name, newest = max(made)
            return self.nodes[name].containerd, newest
        raise LookupError(f"no container {container} of pod {namespace}/{pod} on {', '.join(self.nodes)}")


def _as_list(manifests: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
