"""A real Prometheus finds Purser's metrics as the chart tells it to, and can read them.

Debian's is built without discovery by the API server: it is told of the pods in a file, with the labels that such
discovery gives them. What is chosen of these, and under which address, is up to it.
"""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import helm_python
import pytest
import yaml

from purser.core.names import DEFAULT_NAMESPACE
from purser.lab.controlplane.process import Process, answers_ok
from purser.lab.driver.parts import ProcessLoad
from purser.lab.ports import free_ports

from .kubernetes import BUSYBOX_IMAGE, busybox_pod
from .kubernetes.network import NODE_ADDRESS
from .neighbours import program
from .operator_stack import Stack
from .purser_processes import CHART, LOOPBACK, Purser

Raw = dict[str, Any]
NAMESPACE = "measured"
COMPONENTS = {"agent", "scheduler", "operator"}
ANNOTATIONS = [
    {"source_labels": ["__meta_kubernetes_pod_annotation_prometheus_io_scrape"], "action": "keep", "regex": "true"},
    {
        "source_labels": ["__meta_kubernetes_pod_ip", "__meta_kubernetes_pod_annotation_prometheus_io_port"],
        "regex": "(.+);(.+)",
        "replacement": "$1:$2",
        "target_label": "__address__",
    },
]
"""What everybody's configuration does with these annotations."""


class Prometheus:
    """Looks for pods by their annotations, and by the chart's PodMonitor."""

    def __init__(self, purser: Purser, folder: Path, monitor: Raw) -> None:
        [port] = free_ports(1)
        self._url = f"http://{LOOPBACK}:{port}"
        pods = folder / "pods.json"
        pods.write_text(
            json.dumps(
                [
                    target
                    for pod in purser.cluster.get("pods", namespace=DEFAULT_NAMESPACE)["items"]
                    for target in discovered(pod)
                ]
            )
        )
        jobs = [
            {"job_name": "annotations", "relabel_configs": ANNOTATIONS},
            as_the_prometheus_operator_does(monitor),
        ]
        found = {"file_sd_configs": [{"files": [str(pods)]}]}
        config = folder / "prometheus.json"
        every = {"scrape_interval": "1s"}
        config.write_text(json.dumps({"global": every, "scrape_configs": [each | found for each in jobs]}))
        argv = [
            program(purser.cluster, "prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        self.process = Process("prometheus", argv, purser.cluster.logs)

    def is_ready(self) -> bool:
        return answers_ok(f"{self._url}/-/ready")

    def components(self, job: str) -> set[str]:
        """Parts of Purser that are scraped; of each, the pods' label says which part it is."""
        targets = [each for each in self._get("targets", state="active")["activeTargets"] if each["scrapePool"] == job]
        component = "__meta_kubernetes_pod_label_app_kubernetes_io_component"
        return {each["discoveredLabels"][component] for each in targets if each["health"] == "up"}

    def query(self, text: str) -> list[Raw]:
        """The labels of each series."""
        return [each["metric"] for each in self._get("query", query=text)["result"]]

    def _get(self, what: str, **parameters: str) -> Any:
        with urlopen(f"{self._url}/api/v1/{what}?{urlencode(parameters)}") as answer:
            return json.load(answer)["data"]


def discovered(pod: Raw) -> Iterator[Raw]:
    """As Prometheus' documentation has it of pods: a target for each port that a container declares."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    labels = {"namespace": metadata["namespace"], "pod_name": metadata["name"], "pod_ip": status.get("podIP", "")}
    labels["pod_node_name"] = spec.get("nodeName", "")
    labels |= {f"pod_label_{meta(key)}": value for key, value in metadata.get("labels", {}).items()}
    labels |= {f"pod_annotation_{meta(key)}": value for key, value in metadata.get("annotations", {}).items()}
    for container in spec["containers"]:
        for port in container.get("ports", []):
            labels["pod_container_port_name"] = port.get("name", "")
            told = {f"__meta_kubernetes_{key}": value for key, value in labels.items()}
            yield {"targets": [f"{status.get('podIP')}:{port['containerPort']}"], "labels": told}


def meta(name: str) -> str:
    """A label's name as Prometheus can have it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def as_the_prometheus_operator_does(monitor: Raw) -> Raw:
    """The part of Prometheus' configuration that it makes of a PodMonitor."""
    spec = monitor["spec"]
    [endpoint] = spec["podMetricsEndpoints"]
    keep = {f"pod_label_{meta(key)}": value for key, value in spec["selector"]["matchLabels"].items()}
    keep |= {"namespace": monitor["metadata"]["namespace"], "pod_container_port_name": endpoint["port"]}
    own = [
        {"source_labels": each["sourceLabels"], "target_label": each["targetLabel"]} for each in endpoint["relabelings"]
    ]
    return {
        "job_name": "monitor",
        "honor_labels": endpoint["honorLabels"],
        "relabel_configs": [
            *(
                {"source_labels": [f"__meta_kubernetes_{key}"], "regex": value, "action": "keep"}
                for key, value in keep.items()
            ),
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
            *own,
        ],
    }


@pytest.fixture(scope="module")
def operator(purser: Purser) -> Iterator[Stack]:
    with Stack(purser.cluster).running() as stack:
        yield stack


@pytest.fixture(scope="module")
def prometheus(purser: Purser, operator: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """With pods of the chart's labels, annotations and ports, in the network where Purser's processes are."""
    cluster = purser.cluster
    ports = {
        "agent": purser.agents[0].metrics_port,
        "scheduler": purser.scheduler_metrics,
        "operator": operator.metrics_port,
    }
    documents = [each for enabled in (False, True) for each in render(ports, enabled)]
    monitor = next(each for each in documents if each["kind"] == "PodMonitor")
    templates = {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]
        for each in documents
        if each["kind"] in ("DaemonSet", "Deployment")
    }
    assert set(templates) == COMPONENTS
    cluster.create(*(stand_in(name, template, cluster.node_name) for name, template in templates.items()))
    for name in templates:
        cluster.wait_pod(f"measured-{name}", DEFAULT_NAMESPACE)
    found = Prometheus(purser, tmp_path_factory.mktemp("prometheus"), monitor)
    found.process.start()
    found.process.wait_ready(found.is_ready)
    yield found
    found.process.stop()
    cluster.delete("pod", f"-n{DEFAULT_NAMESPACE}", *(f"measured-{name}" for name in templates))


def render(ports: dict[str, int], operator: bool) -> list[Raw]:
    values: Raw = {name: {"metricsPort": port} for name, port in ports.items()}
    values["operator"]["enabled"] = operator
    values["metrics"] = {"podMonitor": {"enabled": True}}
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="purser", namespace=DEFAULT_NAMESPACE)
    return [one for name, text in files.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]


def stand_in(component: str, template: Raw, node: str) -> Raw:
    containers = [
        {
            "name": each["name"],
            "image": BUSYBOX_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sleep", "3600"],
            "ports": [port for port in each.get("ports", []) if port["name"] == "metrics"],
        }
        for each in template["spec"]["containers"]
    ]
    metadata = template["metadata"] | {"name": f"measured-{component}", "namespace": DEFAULT_NAMESPACE}
    spec = {"nodeName": node, "hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("job", ["annotations", "monitor"])
def test_every_part_is_found_and_scraped(purser: Purser, prometheus: Prometheus, job: str) -> None:
    purser.cluster.wait_until("all are scraped", lambda: prometheus.components(job) >= COMPONENTS)


def test_a_query_lists_gpus_by_node_and_grants_by_pod(purser: Purser, prometheus: Prometheus) -> None:
    cluster = purser.cluster
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    cluster.create_namespace(NAMESPACE)
    try:
        cluster.create(busybox_pod("holder", namespace=NAMESPACE, resources=limits))
        cluster.wait_pod("holder", NAMESPACE)
        grant = f'purser_grant_memory_bytes{{job="monitor", pod="holder", namespace="{NAMESPACE}"}}'
        [told] = cluster.wait_until("the grant is measured", lambda: prometheus.query(grant))
        [card] = prometheus.query(f'purser_device_info{{job="monitor", uuid="{told["uuid"]}"}}')
        assert card["node"] == cluster.node_name
    finally:
        cluster.delete("namespace", NAMESPACE)


def test_every_query_of_every_dashboard_answers_with_data(purser: Purser, prometheus: Prometheus) -> None:
    """With a container that uses what it holds, known by its own cgroup, and a pod that waits."""
    cluster = purser.cluster
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "20"}
    cluster.create_namespace(NAMESPACE)
    try:
        cluster.create(busybox_pod("holder", namespace=NAMESPACE, resources=limits))
        cluster.create(busybox_pod("waits", namespace=NAMESPACE, resources={**limits, "nvidia.com/gpu": "99"}))
        cluster.wait_pod("holder", NAMESPACE)
        pod = cluster.get("pod", "holder", NAMESPACE)
        grant = f'purser_grant_memory_bytes{{job="monitor", pod="holder", namespace="{NAMESPACE}"}}'
        [told] = cluster.wait_until("the grant is measured", lambda: prometheus.query(grant))
        purser.driver.add_process(told["uuid"], process_of(pod), ProcessLoad(memory_mib=700))
        asked = {query: as_grafana_asks(query) for query in panel_queries()}

        def unanswered() -> list[str]:
            return [query for query, text in asked.items() if not prometheus.query(text)]

        try:
            cluster.wait_until("each query answers", lambda: not unanswered())
        except TimeoutError:
            assert unanswered() == []
        used = f'purser_container_memory_used_bytes{{job="monitor", pod="holder", uuid="{told["uuid"]}"}}'
        [found] = cluster.wait_until("its memory is known to be its own", lambda: prometheus.query(used))
        assert found["container"] == told["container"]
    finally:
        cluster.delete("namespace", NAMESPACE)


def panel_queries() -> list[str]:
    pages = sorted((CHART / "files/dashboards").glob("*.json"))
    panels = [panel for page in pages for panel in json.loads(page.read_text())["panels"]]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def as_grafana_asks(query: str) -> str:
    """With all values of all variables."""
    return re.sub(r"\$(node|namespace|pod)\b", ".*", query).replace("$__rate_interval", "1m")


def process_of(pod: Raw) -> int:
    """A process of the pod's container."""
    [container] = pod["status"]["containerStatuses"]
    container_id = container["containerID"].rpartition("/")[2]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if container_id in (folder / "cgroup").read_text():
                return int(folder.name)
    raise AssertionError(f"no process is in container {container_id}")


def test_promtool_finds_no_fault_with_any_metric_but_for_a_name_of_nvidias(purser: Purser, operator: Stack) -> None:
    said = []
    for port in (purser.agents[0].metrics_port, purser.scheduler_metrics, operator.metrics_port):
        with urlopen(f"http://{NODE_ADDRESS}:{port}/metrics") as answer:
            told = subprocess.run(
                [program(purser.cluster, "promtool"), "check", "metrics"], input=answer.read(), capture_output=True
            )
        said += (told.stdout + told.stderr).decode().splitlines()
    assert said == ['gpu_operator_gpu_nodes_total non-counter metrics should not have "_total" suffix']
