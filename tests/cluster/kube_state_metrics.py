"""What kube-state-metrics says of pods and nodes, in OpenMetrics with times: `promtool` makes blocks of it.

Names and labels are those of kube-state-metrics v2 (docs/metrics): pods have ``namespace``, ``pod`` and ``uid``, and
containers' requests ``container``, ``node``, ``resource`` (with every other character as ``_``) and ``unit`` besides.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

SCRAPE_S = 30


class KsmPod(msgspec.Struct, frozen=True):
    """A pod of one container. Times are seconds since the epoch."""

    name: str
    uid: str
    node: str
    requests: dict[str, float]
    """By resource, as kube-state-metrics spells it: cores, bytes, numbers."""
    created_s: float
    bound_s: float
    completed_s: float = math.inf
    """When its containers ended."""
    deleted_s: float = math.inf


class KsmNode(msgspec.Struct, frozen=True):
    """A node."""

    name: str
    allocatable: dict[str, float]
    created_s: float
    labels: dict[str, str] = {}
    gone_s: float = math.inf


_UNITS = {"cpu": "core", "memory": "byte"}


def openmetrics(pods: Sequence[KsmPod], nodes: Sequence[KsmNode], begin_s: int, end_s: int) -> Iterator[str]:
    """All samples, a scrape each 30 seconds."""
    told: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    def say(name: str, labels: dict[str, str], value: float, at_s: int) -> None:
        text = ",".join(f'{key}="{each}"' for key, each in labels.items())
        told[name][text].append(f"{name}{{{text}}} {value:.17g} {at_s}")

    for at_s in range(begin_s, end_s, SCRAPE_S):
        for pod in pods:
            if pod.created_s <= at_s < pod.deleted_s:
                _say_pod(say, pod, at_s)
        for node in nodes:
            if node.created_s <= at_s < node.gone_s:
                own = {"node": node.name}
                say("kube_node_info", own, 1, at_s)
                say("kube_node_created", own, node.created_s, at_s)
                say("kube_node_labels", own | {f"label_{key}": value for key, value in node.labels.items()}, 1, at_s)
                for resource, amount in node.allocatable.items():
                    unit = _UNITS.get(resource, "integer")
                    say("kube_node_status_allocatable", own | {"resource": resource, "unit": unit}, amount, at_s)
    for name, series in told.items():
        yield f"# TYPE {name} gauge"
        for lines in series.values():
            yield from lines
    yield "# EOF"


def _say_pod(say, pod: KsmPod, at_s: int) -> None:
    own = {"namespace": "ns", "pod": pod.name, "uid": pod.uid}
    is_bound = pod.bound_s <= at_s
    node = {"node": pod.node if is_bound else ""}
    say("kube_pod_info", own | node | {"priority_class": "", "host_network": "false"}, 1, at_s)
    say("kube_pod_created", own, math.floor(pod.created_s), at_s)
    if is_bound:
        say("kube_pod_status_scheduled_time", own, math.floor(pod.bound_s), at_s)
        say("kube_pod_start_time", own, math.floor(pod.bound_s) + 1, at_s)
    if pod.completed_s <= at_s:
        say("kube_pod_completion_time", own, math.floor(pod.completed_s), at_s)
    for resource, amount in pod.requests.items():
        unit = _UNITS.get(resource, "integer")
        labels = own | {"container": "main"} | node | {"resource": resource, "unit": unit}
        say("kube_pod_container_resource_requests", labels, amount, at_s)
