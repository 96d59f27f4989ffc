"""What a step is called when its author gave it no name."""

import json
from collections.abc import Iterator

from purser.core.wording import counted
from purser.lab.scenario.spec import Expect, FaultStep, NeverRule, Step, Wait


def describe(step: Step) -> str:
    """The step in a few words."""
    if step.name:
        return step.name
    if step.apply is not None:
        return f"apply {_manifests(step.apply)}"
    if step.refused is not None:
        return f"refused: {_manifests(step.refused.apply)}"
    if step.wait is not None:
        return _wait(step.wait)
    if step.expect is not None:
        return _expect(step.expect)
    if step.fault is not None:
        return _describe_fault(step.fault)
    if step.patch is not None:
        return f"patch {step.patch.kind} {', '.join(step.patch.names)}"
    if step.join is not None:
        joining = sum(each.count for each in step.join)
        return f"{counted(joining, 'node')} {'joins' if joining == 1 else 'join'}"
    if step.never is not None:
        return _describe_never(step.never)
    return f"delete {step.delete.kind} {', '.join(step.delete.names)}" if step.delete else "nothing"


def _describe_never(never: NeverRule) -> str:
    what = f"{never.kind} {', '.join(never.names)}" + (" removed" if never.deleted else with_fields(never.match))
    what += f" for {never.longer_than_s:g} s" if never.longer_than_s else ""
    if not never.more_than:
        return f"never: {what}"
    return f"never more than {never.more_than}{'' if never.deleted else ' at a time'}: {what}"


def with_fields(match: dict[str, object]) -> str:
    """As `` with spec.unschedulable=true``."""
    return f" with {', '.join(_fields(match))}" if match else ""


def _fields(match: object, path: str = "") -> Iterator[str]:
    if isinstance(match, dict) and match:
        for key, value in match.items():
            yield from _fields(value, f"{path}.{key}" if path else str(key))
    else:
        yield f"{path}={match if isinstance(match, str) else json.dumps(match, default=str)}"


def _manifests(manifests: str | list[dict[str, object]]) -> str:
    if isinstance(manifests, str):
        return manifests
    names = [f"{body.get('kind')} {(_metadata(body)).get('name')}" for body in manifests]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _metadata(body: dict[str, object]) -> dict[str, object]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _wait(wait: Wait) -> str:
    if wait.node:
        return f"{wait.node} offers {wait.allocatable} {wait.resource}"
    number = "" if wait.count is None else f": {counted(wait.count, 'pod')}"
    return f"{', '.join(wait.pods)} {wait.phase}{number}"


def _expect(expect: Expect) -> str:
    if expect.grants is not None:
        where = f" on {expect.grants.node}" if expect.grants.node else ""
        return f"grants per GPU{where} {expect.grants.per_gpu}"
    if expect.event is not None:
        message = f" with {expect.event.contains!r} in its message" if expect.event.contains else ""
        return f"event {expect.event.reason} on {expect.event.pod}{message}"
    if expect.environment is not None:
        return f"environment of {expect.environment.pod}"
    if expect.container is not None:
        return f"CPUs, memory and devices of {expect.container.pod}"
    if expect.objects is not None:
        number = "" if expect.objects.count is None else f": {counted(expect.objects.count, 'object')}"
        return f"{expect.objects.kind} {', '.join(expect.objects.names)}{with_fields(expect.objects.match)}{number}"
    if expect.rejections is None:
        return ""
    reason = f" with reason {expect.rejections.reason}" if expect.rejections.reason else ""
    return f"{counted(expect.rejections.count, 'pod')} rejected by kubelets{reason}"


def _describe_fault(fault: FaultStep) -> str:
    for word, gpu in (("lose", fault.lose_gpu), ("recover", fault.recover_gpu), ("inject Xid into", fault.inject_xid)):
        if gpu is not None:
            return f"{word} GPU {gpu.gpu} on {gpu.node}"
    for word, node in (
        ("restart the kubelet of", fault.restart_kubelet),
        ("kill the agent of", fault.kill_agent),
        ("start the agent of", fault.start_agent),
    ):
        if node:
            return f"{word} {node}"
    if fault.needs_operator:
        return "kill the operator" if fault.kill_operator else "start the operator"
    return "kill the scheduler" if fault.kill_scheduler else "start the scheduler"
