"""The chart as a user installs it: by Helm, from the image, with the simulated driver where its values say."""

import json
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from purser.core.names import DEFAULT_NAMESPACE
from purser.lab.driver.node import DriverKind, SimulatedDriver

from .helm import Helm
from .kubernetes import BUSYBOX_IMAGE, RealCluster
from .kubernetes.image import write_program
from .purser_image import REFERENCE

PROFILE = "a100-40gb-8"
NAMESPACE = DEFAULT_NAMESPACE
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
SLOTS = 20
METRICS_PORT = 9440
"""Of agents, by default."""

_CDI_FROM_PLUGINS = (1, 29)
"""Since then kubelet hands the CDI devices of a device plugin on to the runtime; annotations it did before."""


class Standing(NamedTuple):
    """All that stands in a cluster, but for events and what each node or pod renews by itself."""

    objects: set[tuple[str, str, str]]
    """Kind, namespace and name."""
    on_nodes: set[tuple[str, str]]
    """Annotations, labels, conditions and capacity of nodes, by name."""


class Release:
    """The release `purser` in its namespace, on a cluster that has its images and a driver."""

    def __init__(self, cluster: RealCluster, archive: Path, folder: Path, registry: str) -> None:
        """archive: the image; registry: the address of one for the chart."""
        self.cluster = cluster
        self.registry = registry
        self._helm = Helm(cluster.binaries, folder)
        cluster.start_services()
        version = cluster.get("nodes")["items"][0]["status"]["nodeInfo"]["kubeletVersion"]
        scheduler = folder / "kube-scheduler.tar"
        write_program(
            scheduler, f"registry.k8s.io/kube-scheduler:{version}", Path(cluster.binaries.path("kube-scheduler"))
        )
        for each in (archive, scheduler):
            cluster.containerd.import_image(each)
        self.driver_root = folder / "driver"
        libraries = self.driver_root / "usr" / "lib64"
        self.driver = SimulatedDriver.create(libraries, cluster.node_name, PROFILE, kind=DriverKind.LIBRARY)
        _make_device_files(self.driver_root / "dev", len(self.driver.uuids))
        self.values = [f"--set=agent.driverRoot={self.driver_root}", f"--set=agent.slots={SLOTS}"]
        self.with_cdi = (
            f"--set=agent.deviceListStrategy={'cdi-cri' if cluster.version >= _CDI_FROM_PLUGINS else 'cdi-annotations'}"
        )

    def helm(self, *arguments: str) -> str:
        """What Helm prints; raises RuntimeError with all that it said, and the pods."""
        try:
            return self._helm(*arguments, f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}")
        except RuntimeError as error:
            pods = self.cluster.kubectl("get", "pods,events", f"-n{NAMESPACE}", "-owide")
            raise RuntimeError(f"{error}\n{pods}") from error

    def tag(self, reference: str) -> None:
        """Have nodes know the image by another name, as if they had pulled it from there."""
        self.cluster.containerd.tag_image(REFERENCE, reference)

    def purser(self, *arguments: str) -> str:
        """A command of Purser's own, in the scheduler's pod; raises RuntimeError where it fails."""
        where = (f"-n{NAMESPACE}", "exec", "deploy/purser-scheduler", "-cpurser", "--", "purser")
        return self.cluster.kubectl(*where, *arguments)

    def check_node(self, *options: str) -> dict[str, dict[str, str]]:
        """What `purser agent check` in the agent's pod finds, by what it looks at; it fails where something failed."""
        words = (f"-n{NAMESPACE}", "exec", "ds/purser-agent", "--", "purser", "agent", "check", "-ojson", *options)
        command = [self.cluster.binaries.path("kubectl"), f"--kubeconfig={self.cluster.kubeconfig}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        found = {each["check"]: each for each in json.loads(done.stdout)}
        assert done.returncode == int(any(each["state"] == "failed" for each in found.values())), done.stderr
        return found

    def agent_metrics(self, name: str) -> list[dict[str, str | float]]:
        """What the agent tells by a name: the labels of each sample, and its value as ``value``."""
        [pod] = self.pods("agent")
        with urlopen(f"http://{pod['status']['podIP']}:{METRICS_PORT}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = (each for family in families for each in family.samples)
        return [{**each.labels, "value": each.value} for each in samples if each.name == name]

    def enforce(self, level: str) -> None:
        """The Pod Security Standard of the release's namespace."""
        label = f"pod-security.kubernetes.io/enforce={level}"
        self.cluster.kubectl("label", "--overwrite", "namespace", NAMESPACE, label)

    def standing(self) -> Standing:
        """Once neither a pod of Purser's nor a namespace is on its way out any more."""
        self.cluster.wait_until("what leaves is gone", self._nothing_leaves)
        kinds = self.cluster.kubectl("api-resources", "--verbs=list", "-oname").split()
        wanted = ",".join(each for each in kinds if each.partition(".")[0] not in ("events", "componentstatuses"))
        columns = "-ocustom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
        lines = self.cluster.kubectl("get", wanted, "-A", "--no-headers", "--ignore-not-found", columns).splitlines()
        found = {tuple("" if word == "<none>" else word for word in line.split()) for line in lines}
        return Standing(found, set(self._on_nodes()))  # type: ignore[arg-type]

    def _nothing_leaves(self) -> bool:
        phases = {each["status"]["phase"] for each in self.cluster.get("namespaces")["items"]}
        return phases == {"Active"} and not self.cluster.get("pods", namespace=NAMESPACE)["items"]

    def _on_nodes(self) -> Iterator[tuple[str, str]]:
        for node in self.cluster.get("nodes")["items"]:
            for field in ("annotations", "labels"):
                yield from ((field, name) for name in node["metadata"].get(field, {}))
            yield from (("conditions", each["type"]) for each in node["status"]["conditions"])
            yield from (("capacity", name) for name in node["status"]["capacity"])

    def pods(self, component: str) -> list[Any]:
        """Purser's own pods that are not on their way out."""
        found = self.cluster.get("pods", "", NAMESPACE, f"app.kubernetes.io/component={component}")["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def books(self) -> set[tuple[str, ...]]:
        """Who holds how much of which GPU, once all books of all parts agree."""
        self.cluster.wait_until("the books agree", self._agree, 30)
        grants = json.loads(self.purser("get", "grants", "-ojson"))
        return {tuple(sorted(map(str, each.items()))) for each in grants}

    def _agree(self) -> bool:
        try:
            self.purser("get", "grants", "--check")
        except RuntimeError:
            return False
        return True

    def wait_running(self, namespace: str, count: int, seconds: float = 180) -> list[Any]:
        """The namespace's pods, once all run; at once a TimeoutError where one was refused."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.cluster.get("pods", namespace=namespace)["items"]
            phases = [each["status"].get("phase") for each in found]
            if len(found) == count and set(phases) == {"Running"}:
                return list(found)
            if "Failed" in phases or time.monotonic() > deadline:
                raise TimeoutError("\n".join([f"of {len(found)} pods all {count} should run", *_odd(found)]))
            time.sleep(0.3)


def _odd(pods: list[Any]) -> Iterator[str]:
    for each in pods:
        status = each["status"]
        if status.get("phase") != "Running":
            why = status.get("message") or [condition.get("message") for condition in status.get("conditions", ())]
            name, scheduler = each["metadata"]["name"], each["spec"]["schedulerName"]
            yield f"{name} of {scheduler} is {status.get('phase')} since {status.get('startTime')}: {why}"


def gpu_pod(name: str, namespace: str, limits: dict[str, int]) -> dict[str, Any]:
    """A pod that prints its environment and stays; in the host's network, which costs no CNI plugin."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "env; exec sleep 36000"],
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "hostNetwork": True, "terminationGracePeriodSeconds": 0},
    }


def _make_device_files(folder: Path, gpus: int) -> None:
    """Of the driver; none of them leads to a GPU."""
    folder.mkdir()
    for name in ("nvidiactl", *(f"nvidia{minor}" for minor in range(gpus))):
        os.mknod(folder / name, stat.S_IFCHR | 0o666, Path("/dev/null").stat().st_rdev)
