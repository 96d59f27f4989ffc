"""What each kind of step does. A step that does not come out raises `StepFailed`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from purser.kube.errors import ApiError, KubeError, NotFoundError
from purser.lab.cluster import Lab
from purser.lab.scenario import objects, probes
from purser.lab.scenario.never_rules import NeverRules
from purser.lab.scenario.spec import DeleteStep, FaultStep, Patch, RefusedStep, Step

_EXPECTATION_POLL_S = 0.05


class StepFailed(Exception):
    """What was so instead of what should be."""


async def run_step(lab: Lab, step: Step, folder: Path, rules: NeverRules) -> None:
    """Carry out one step. Raises `StepFailed`, `ScenarioError` for a manifest that is none, and `KubeError`."""
    if step.apply is not None:
        await objects.apply(lab.client, objects.manifests(step.apply, folder))
    if step.refused is not None:
        await _refused(lab, step.refused, folder)
    if (wait := step.wait) is not None:
        await _poll(lambda: probes.probe_wait(lab, wait), step.within_s)
    if (expect := step.expect) is not None:
        await _poll(lambda: probes.expected(lab, expect), step.within_s)
    if step.fault is not None:
        await _fault(lab, step.fault)
    if step.delete is not None:
        await _delete(lab, step.delete)
    if step.patch is not None:
        await _patch(lab, step.patch)
    if step.join is not None:
        await lab.add_hollow_nodes(*step.join)
    if step.never is not None:
        await rules.begin(step.never)
    if broken := rules.broken():
        raise StepFailed(broken)


async def _poll(probe: Callable[[], Awaitable[str | None]], within_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        try:
            wrong = await probe()
        except KubeError as error:
            wrong = str(error)
        if wrong is None:
            return
        if loop.time() > deadline:
            raise StepFailed(f"not as expected after {within_s:g} s: {wrong}")
        await asyncio.sleep(_EXPECTATION_POLL_S)


async def _refused(lab: Lab, refused: RefusedStep, folder: Path) -> None:
    try:
        await objects.apply(lab.client, objects.manifests(refused.apply, folder))
    except ApiError as error:
        if refused.contains not in str(error):
            raise StepFailed(
                f"the manifest was refused, but without {refused.contains!r} in the message: {error}"
            ) from error
        return
    raise StepFailed("the manifest was not refused")


async def _fault(lab: Lab, fault: FaultStep) -> None:
    if fault.lose_gpu is not None:
        lab.lose_gpu(fault.lose_gpu.node, fault.lose_gpu.gpu)
    elif fault.recover_gpu is not None:
        lab.recover_gpu(fault.recover_gpu.node, fault.recover_gpu.gpu)
    elif fault.inject_xid is not None:
        lab.inject_xid(fault.inject_xid.node, fault.inject_xid.gpu, fault.inject_xid.xid)
    elif fault.restart_kubelet:
        await lab.restart_kubelet(fault.restart_kubelet)
    elif fault.kill_agent:
        await lab.kill_agent(fault.kill_agent)
    elif fault.start_agent:
        lab.start_agent(fault.start_agent)
    elif fault.kill_scheduler:
        await lab.kill_scheduler()
    elif fault.kill_operator:
        await lab.kill_operator()
    elif fault.start_operator:
        await lab.start_operator()
    else:
        await lab.start_scheduler()


async def _delete(lab: Lab, delete: DeleteStep) -> None:
    resource = objects.find_kind(delete.kind, "delete.kind")
    namespace = delete.namespace if resource.namespaced else None
    for name in delete.names:
        try:
            await lab.client.delete(resource, name, namespace)
        except NotFoundError as error:
            raise StepFailed(str(error)) from error


async def _patch(lab: Lab, patch: Patch) -> None:
    resource = objects.find_kind(patch.kind, "patch.kind")
    found = await objects.named(lab.client, patch.kind, patch.names, patch.namespace)
    merge = await objects.filled(lab.client, patch.merge)
    patched = 0
    for obj in found:
        namespace = patch.namespace if resource.namespaced else None
        with suppress(NotFoundError):  # it was on its way out when it was found
            await lab.client.patch_merge(resource, obj["metadata"]["name"], merge, namespace)
            patched += 1
    if not patched:
        raise StepFailed(f"no {patch.kind} matches {', '.join(patch.names)}")
