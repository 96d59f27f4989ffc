"""The story that `purser lab --demo` goes through: a share of a GPU, a GPU that is lost and recovers, a pod that waits.

Each scene creates or deletes pods through the API, as kubectl would, and then runs Purser's commands against the lab,
as in another terminal. It takes less than a minute.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from purser.kube.resources import PODS, Raw
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from purser.yaml_text import yaml_text

NODE = "t4-4-0"
_SCENE_TIMEOUT_S = 60.0
"""How long a scene may take until its command prints what it is about."""
_RETRY_S = 0.2


def _pod(name: str, limits: dict[str, str]) -> Raw:
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


SHARE = _pod("share", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "7680", "nvidia.com/gpucores": "50"})
WHOLE = _pod("whole", {"nvidia.com/gpu": "4"})


@dataclass(frozen=True)
class Scene:
    """A caption, what changes in the cluster, and commands of Purser."""

    caption: str
    commands: tuple[str, ...]
    """Without the word `purser`. ``{gpu}`` stands for the index of the first GPU that pod share got."""
    until: str
    """A regular expression: the last command runs again until its output matches."""
    delete: Raw | None = None
    create: Raw | None = None
    shown: bool = False
    """Whether the manifest of the new pod is printed."""


SCENES = (
    Scene(
        "Pod share requests half a GPU: 7680 MiB of memory and 50% of the compute",
        ("get grants",),
        r"share .* running",
        create=SHARE,
        shown=True,
    ),
    Scene(
        "The pod's GPU falls off the bus, so it is unhealthy and closed to new pods",
        (f"lab gpu lose {NODE} {{gpu}}", "get gpus"),
        "Unhealthy",
    ),
    Scene(
        "You delete and recreate the pod, which then gets another GPU",
        ("get grants",),
        r"share .* running",
        delete=SHARE,
        create=SHARE,
    ),
    Scene(
        "The lost GPU recovers and is open to new pods again",
        (f"lab gpu recover {NODE} {{gpu}}", "get gpus"),
        r"\A(?!.*Unhealthy).*Healthy",
    ),
    Scene(
        "Pod whole requests 4 whole GPUs and waits. Purser looks for changes that would let the pod start",
        ("why whole",),
        "alone makes the pod fit",
        create=WHOLE,
        shown=True,
    ),
    Scene(
        "Pod share is deleted, so pod whole starts",
        ("get grants",),
        r"whole .* running",
        delete=SHARE,
    ),
)


class DemoError(Exception):
    """A command of the demo did not print what its scene is about."""


def demo_settings() -> LabSettings:
    """The lab in which it is played: one node with four GPUs."""
    return LabSettings(node_choices(("t4-4",)))


async def play(lab: Lab) -> AsyncIterator[str]:
    """The lines of each scene, as they happen. ``lab`` is ready. Raises `DemoError` and `purser.kube.KubeError`."""
    gpu = ""
    for number, scene in enumerate(SCENES, 1):
        yield f"# {number}/{len(SCENES)} {scene.caption}"
        if scene.delete is not None:
            await _delete(lab, scene.delete["metadata"]["name"])
        if scene.create is not None:
            await lab.client.create(PODS.raw(), scene.create, "default")
            if scene.shown:
                yield yaml_text(scene.create)
        *changes, shown = (command.format(gpu=gpu) for command in scene.commands)
        for command in changes:
            yield f"$ purser {command}\n{await _output(lab, command)}\n"
        output = await _until(lab, shown, scene.until)
        yield f"$ purser {shown}\n{output}\n"
        gpu = gpu or _gpu_of(output)


async def _delete(lab: Lab, pod: str) -> None:
    """Delete a pod, and wait until it is gone."""
    await lab.client.delete(PODS, pod, "default")
    try:
        async with asyncio.timeout(_SCENE_TIMEOUT_S):
            while pod in [each.metadata.name for each in (await lab.client.list(PODS, "default")).items]:  # noqa: ASYNC110
                await asyncio.sleep(_RETRY_S)
    except TimeoutError as error:
        raise DemoError(f"pod {pod} still exists {_SCENE_TIMEOUT_S:g} s after it was deleted") from error


def _gpu_of(grants: str) -> str:
    """The index of the GPU of the first grant of a table."""
    head, row = grants.splitlines()[:2]
    return row[head.index("GPUS") :].split()[0]


async def _until(lab: Lab, command: str, pattern: str) -> str:
    """The first output that matches."""
    output = ""
    try:
        async with asyncio.timeout(_SCENE_TIMEOUT_S):
            while not re.search(pattern, output, re.DOTALL):
                output = await _output(lab, command)
    except TimeoutError as error:
        raise DemoError(
            f"purser {command} did not print the expected output within {_SCENE_TIMEOUT_S:g} s. Last output:\n{output}"
        ) from error
    return output


async def _output(lab: Lab, command: str) -> str:
    """What a command of Purser prints in another process, with the lab's kubeconfig."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("purser"),
        *command.split(),
        env=os.environ | {"KUBECONFIG": str(lab.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return printed.decode().rstrip()
