"""What a scenario looks at. Each probe returns None when what it looks for is so, else what is so instead."""

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

from purser.core.grant.signing import GrantError, read
from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.model import Grant
from purser.core.wording import counted
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import EVENTS, NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.scenario import objects
from purser.lab.scenario.matching import MAX_NAMED_OBJECTS, difference
from purser.lab.scenario.spec import (
    Expect,
    ExpectContainer,
    ExpectEnvironment,
    ExpectEvent,
    ExpectGrants,
    ExpectObjects,
    ExpectRejections,
    Phase,
    Wait,
)


async def probe_wait(lab: Lab, wait: Wait) -> str | None:
    """Whether pods are in the phase, or the node offers what it should."""
    if wait.node:
        node = await lab.client.get(NODES, wait.node)
        offered = int(node.status.allocatable.get(wait.resource, 0))
        return None if offered == wait.allocatable else f"{wait.node} offers {offered} {wait.resource}"
    pods = [
        pod
        for pod in (await lab.client.list(PODS, wait.namespace)).items
        if any(fnmatchcase(pod.metadata.name, pattern) for pattern in wait.pods)
    ]
    if wait.phase is Phase.GONE:
        return ("still exists: " + _phases_text(pods)) if pods else None
    there = [pod for pod in pods if pod.status.phase.lower() == wait.phase]
    if wait.count is not None:
        return (
            None
            if len(there) == wait.count
            else f"{len(there)} {wait.phase}, expected {wait.count}: {_phases_text(pods)}"
        )
    missing = [pattern for pattern in wait.pods if not any(fnmatchcase(pod.metadata.name, pattern) for pod in there)]
    if missing or len(there) < len(pods):
        return f"not {wait.phase}: {_phases_text(pod for pod in pods if pod not in there) or ', '.join(missing)}"
    return None


async def expected(lab: Lab, expect: Expect) -> str | None:
    """Whether what a scenario expects is so."""
    if expect.grants is not None:
        return await _grants(lab, expect.grants)
    if expect.event is not None:
        return await _event(lab, expect.event)
    if expect.environment is not None:
        return await _environment(lab, expect.environment)
    if expect.container is not None:
        return await _container(lab, expect.container)
    if expect.objects is not None:
        return await _objects(lab, expect.objects)
    return _rejections(lab, expect.rejections) if expect.rejections else None


async def _objects(lab: Lab, expect: ExpectObjects) -> str | None:
    found = await objects.named(lab.client, expect.kind, expect.names, expect.namespace)
    wrong = {obj["metadata"]["name"]: why for obj in found if (why := difference(expect.match, obj))}
    right = len(found) - len(wrong)
    if expect.count is not None and right == expect.count:
        return None
    if expect.count is None and found and not wrong:
        return None
    listed = "; ".join(f"{name}: {why}" for name, why in list(wrong.items())[:MAX_NAMED_OBJECTS])
    return f"{right} of {len(found)} {expect.kind} match{': ' + listed if listed else ''}"


async def _grants(lab: Lab, expect: ExpectGrants) -> str | None:
    counts: Counter[str] = Counter()
    for pod in (await lab.client.list(PODS)).items:
        grant = _grant(pod)
        if grant is not None and not is_terminal(pod) and expect.node in ("", grant.node):
            counts.update({share.uuid for part in grant.containers for share in part.shares})
    found = sorted(counts.values(), reverse=True)
    return None if found == sorted(expect.per_gpu, reverse=True) else f"the numbers of pods per GPU are {found}"


def _grant(pod: Pod) -> Grant | None:
    try:
        return read(pod.metadata.annotations)
    except GrantError:
        return None


async def _event(lab: Lab, expect: ExpectEvent) -> str | None:
    events = (await lab.client.list(EVENTS, expect.namespace)).items
    messages = [e.message for e in events if (e.involved_object.name, e.reason) == (expect.pod, expect.reason)]
    if any(expect.contains in message for message in messages):
        return None
    return f"messages of event {expect.reason} on {expect.pod}: {'; '.join(messages) or 'none'}"


async def _environment(lab: Lab, expect: ExpectEnvironment) -> str | None:
    pod = await lab.client.get(PODS, expect.pod, expect.namespace)
    container = expect.container or pod.spec.containers[0].name
    node = lab.nodes.get(pod.spec.node_name)
    record = node.container(pod.metadata.uid, container) if node else None
    if record is None:
        return f"container {container} of {expect.pod} was not started"
    wrong = [
        f"{name} is {record.env.get(name, 'not set')}"
        for name, value in expect.variables.items()
        if record.env.get(name) != value
    ]
    return ", ".join(wrong) or None


async def _container(lab: Lab, expect: ExpectContainer) -> str | None:
    pod = await lab.client.get(PODS, expect.pod, expect.namespace)
    name = expect.container or pod.spec.containers[0].name
    node = lab.nodes.get(pod.spec.node_name)
    record = node.container(pod.metadata.uid, name) if node else None
    if node is None or record is None:
        return f"container {name} of pod {expect.pod} was not started"
    places = await node.numa_node_of_gpus((expect.namespace, expect.pod, name))
    found = {
        "cpus": parse_cpuset(record.cpuset).bit_count(),
        "cpuset": record.cpuset,
        "memory_nodes": record.memory_nodes,
        "devices": dict(Counter(places.values())),
    }
    wrong = [f"{key} is {value}" for key, value in found.items() if getattr(expect, key) not in (None, value)]
    return ", ".join(wrong) or None


def _rejections(lab: Lab, expect: ExpectRejections) -> str | None:
    found = Counter[str]()
    for node in lab.nodes.values():
        found.update(node.rejections)
    count = found[expect.reason] if expect.reason else found.total()
    if count == expect.count:
        return None
    listed = ", ".join(f"{number} x {reason}" for reason, number in found.items())
    rejected = f"kubelets rejected {counted(count, 'pod')}"
    if not expect.reason:
        return rejected + (f": {listed}" if listed else "")
    return f"{rejected} with reason {expect.reason}" + (f" (all rejections: {listed})" if listed else "")


def _phases_text(pods: Iterable[Pod]) -> str:
    return ", ".join(f"{pod.metadata.name} {pod.status.phase} {pod.status.message}".rstrip() for pod in pods)
