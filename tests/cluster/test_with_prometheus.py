"""A real Prometheus finds Purser's metrics as the chart tells it to, and can read them."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import helm_python
import pytest
import yaml

from purser.core.names import DEFAULT_NAMESPACE
from purser.lab.driver.parts import ProcessLoad

from .kubernetes import BUSYBOX_IMAGE, busybox_pod
from .kubernetes.network import NODE_ADDRESS
from .neighbours import program
from .operator_stack import Stack
from .prometheus import Prometheus
from .purser_processes import CHART, Purser

Raw = dict[str, Any]
NAMESPACE = "measured"
COMPONENTS = {"agent", "scheduler", "operator"}


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
    found = Prometheus(purser.cluster, tmp_path_factory.mktemp("prometheus"), monitor)
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
    """Whether all nodes and pods are chosen or one of each: with a container that uses what it holds, known by its own
    cgroup, and a pod that waits."""
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
        chosen = {"node": cluster.node_name, "namespace": f"({NAMESPACE}|none)", "pod": "holder"}
        all_values = dict.fromkeys(chosen, ".*")
        asked = {as_grafana_asks(query, values) for query in panel_queries() for values in (all_values, chosen)}

        def unanswered() -> list[str]:
            return sorted(query for query in asked if not prometheus.query(query))

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


def as_grafana_asks(query: str, values: dict[str, str]) -> str:
    """With these values of the dashboard's variables; of several that are chosen Grafana makes `(a|b)`."""
    return re.sub(r"\$(node|namespace|pod)\b", lambda name: values[name[1]], query).replace("$__rate_interval", "1m")


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
            promtool = program(purser.cluster.binaries, "promtool")
            told = subprocess.run([promtool, "check", "metrics"], input=answer.read(), capture_output=True)
        said += (told.stdout + told.stderr).decode().splitlines()
    assert said == ['gpu_operator_gpu_nodes_total non-counter metrics should not have "_total" suffix']
