"""The commands of "How do I ..." that change nothing, given on a lab: README's pod has its share, and another waits."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from purser.kube.resources import PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.contract.client import until
from tests.unit.cli.typed import beside

pytestmark = pytest.mark.gate
ROOT = Path(__file__).parents[2]
PAGE, README = (ROOT / "docs" / "how-do-i.md").read_text(), (ROOT / "README.md").read_text()
READS = ("get", "why", "top --once", "plan free", "simulate --cluster")
ANSWERS = {
    "purser get grants": r"share +main +a100-40gb-8-\d +\d +10240 +30 ",
    "purser why POD -n NAMESPACE": "are too small for 50000 MiB",
    "purser plan free --gpus 8": "Free now: GPUs 0, 1, 2, 3, 4, 5, 6, 7",
}
"""Some of the commands, and what is in their answers."""
NAMES = {"POD": "large", "NAMESPACE": "default", "NODE": "a100-40gb-8-0"}


def commands() -> list[str]:
    given = dict.fromkeys(re.findall(r"^\$ (purser .+)", PAGE, re.MULTILINE))
    goes_on = ("--apply", "--watch")
    return [
        each
        for each in given
        if each.removeprefix("purser ").startswith(READS) and not any(word in each for word in goes_on)
    ]


def readmes_pod() -> dict[str, Any]:
    (block,) = re.findall(r"```yaml\n(.+?)```", README, re.DOTALL)
    return dict(yaml.safe_load(block))


def too_large() -> dict[str, Any]:
    pod = readmes_pod()
    pod["metadata"]["name"] = "large"
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = 50000
    return pod


async def test_commands_that_change_nothing_answer() -> None:
    settings = LabSettings(node_choices(["a100-40gb-8:2"]), probe_interval_s=0.1)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        for pod in (readmes_pod(), too_large()):
            await lab.client.create(PODS, pod, "default")

        async def given(command: str) -> tuple[int, str, str]:
            for name, value in NAMES.items():
                command = re.sub(rf"\b{name}\b", value, command)
            return await beside(*shlex.split(command)[1:], f"--kubeconfig={lab.kubeconfig}")

        async def runs() -> bool:
            code, out, _ = await given("purser get grants -o json")
            return code == 0 and [grant["state"] for grant in json.loads(out)] == ["running"]

        await until("the pod with a share runs", runs)
        answers = {command: await given(command) for command in commands()}
    assert ANSWERS.keys() <= answers.keys()
    assert {command: answer for command, answer in answers.items() if answer[0]} == {}
    for command, words in ANSWERS.items():
        assert re.search(words, "".join(answers[command][1:])), answers[command]
