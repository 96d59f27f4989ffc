"""Debian's Prometheus beside Purser on the real cluster.

It is built without discovery by the API server: it is told of the pods in a file, with the labels that such discovery
gives them. What is chosen of these, and under which address, is up to it.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from purser.core.names import DEFAULT_NAMESPACE
from purser.lab.controlplane.process import Process, is_answering
from purser.lab.ports import free_ports

from .kubernetes import RealCluster
from .neighbours import program
from .purser_processes import LOOPBACK

Raw = dict[str, Any]
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
    """Looks for pods of Purser's namespace by their annotations, and by the chart's PodMonitor where it is given."""

    def __init__(self, cluster: RealCluster, folder: Path, monitor: Raw | None = None) -> None:
        [port] = free_ports(1)
        self._url = f"http://{LOOPBACK}:{port}"
        pods = folder / "pods.json"
        pods.write_text(
            json.dumps(
                [
                    target
                    for pod in cluster.get("pods", namespace=DEFAULT_NAMESPACE)["items"]
                    for target in discovered(pod)
                ]
            )
        )
        jobs = [{"job_name": "annotations", "relabel_configs": ANNOTATIONS}]
        if monitor is not None:
            jobs.append(as_the_prometheus_operator_does(monitor))
        found = {"file_sd_configs": [{"files": [str(pods)]}]}
        config = folder / "prometheus.json"
        every = {"scrape_interval": "1s"}
        config.write_text(json.dumps({"global": every, "scrape_configs": [each | found for each in jobs]}))
        argv = [
            program(cluster.binaries, "prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        self.process = Process("prometheus", argv, cluster.logs)

    def is_ready(self) -> bool:
        return is_answering(f"{self._url}/-/ready")

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


def whole_blocks_end_s() -> int:
    """An end for a history: blocks are of two hours, and nothing is reported after the last."""
    return int(time.time()) // 7200 * 7200 - 7200


@contextmanager
def serving_history(cluster: RealCluster, folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """The URL of a Prometheus that has these lines of OpenMetrics, and scrapes nothing."""
    text, data, config = folder / "history.txt", folder / "data", folder / "prometheus.yaml"
    text.write_text("\n".join(lines) + "\n")
    made = [program(cluster.binaries, "promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    done = subprocess.run(made, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    config.write_text("scrape_configs: []\n")
    [port] = free_ports(1)
    argv = [
        program(cluster.binaries, "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={LOOPBACK}:{port}",
    ]
    process = Process("prometheus-history", argv, cluster.logs)
    process.start()
    process.wait_ready(lambda: is_answering(f"http://{LOOPBACK}:{port}/-/ready"))
    yield f"http://{LOOPBACK}:{port}"
    process.stop()
