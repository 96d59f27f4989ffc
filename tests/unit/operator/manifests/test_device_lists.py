"""The toolkit takes a container's devices from where the device plugin names them, and from nowhere that pods write."""

from typing import Any

import pytest

from purser.operator.model import RuntimeKind
from purser.operator.order import Operand

from .wanteds import rendered

CONTAINERD = RuntimeKind("containerd", "")
OLD = RuntimeKind("containerd", "", cdi=False)
K3S = RuntimeKind("containerd", "k3s", config_v2=True)
NVIDIA = {"devicePlugin": {"flavor": "nvidia"}}
BY_MOUNTS = {"devicePlugin": {"flavor": "nvidia", "env": [{"name": "DEVICE_LIST_STRATEGY", "value": "volume-mounts"}]}}
VARIABLES = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
MOUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"


def main_container(spec: dict[str, Any], kind: RuntimeKind, operand: Operand) -> dict[str, Any] | None:
    for each in rendered(spec, runtimes=(kind,)):
        if each.operand == operand and each.object["kind"] == "DaemonSet":
            container: dict[str, Any] = each.object["spec"]["template"]["spec"]["containers"][0]
            return container
    return None


@pytest.mark.parametrize(
    ("spec", "kind", "variables", "mounts"),
    [
        pytest.param({}, CONTAINERD, "false", "false", id="Purser's agent, by CDI"),
        pytest.param({"cdi": {"enabled": False}}, CONTAINERD, "false", "true", id="Purser's agent, CDI switched off"),
        pytest.param({}, K3S, "false", "true", id="Purser's agent, a runtime that may not read the toolkit's file"),
        pytest.param({}, OLD, "false", "true", id="Purser's agent, old runtime"),
        pytest.param(NVIDIA, CONTAINERD, "false", "false", id="NVIDIA's plugin, by CDI"),
        pytest.param(NVIDIA, OLD, "true", "false", id="NVIDIA's plugin, by variables"),
        pytest.param(BY_MOUNTS, OLD, "false", "true", id="NVIDIA's plugin, by mounts"),
        pytest.param({"devicePlugin": {"enabled": False}}, CONTAINERD, "true", "false", id="somebody else's plugin"),
        pytest.param({"toolkit": {"env": [{"name": MOUNTS, "value": "false"}]}}, OLD, "true", "false", id="no mounts"),
    ],
)
def test_devices_are_taken_from_where_they_are_named(
    spec: dict[str, Any], kind: RuntimeKind, variables: str, mounts: str
) -> None:
    toolkit = main_container(spec, kind, Operand.TOOLKIT)
    assert toolkit is not None
    values = {each["name"]: each.get("value") for each in toolkit["env"]}
    assert (values[VARIABLES], values[MOUNTS]) == (variables, mounts)
    agent = main_container(spec, kind, Operand.DEVICE_PLUGIN)
    if agent is not None and "args" in agent and spec.get("devicePlugin", {}).get("flavor") != "nvidia":
        way = "volume-mounts" if mounts == "true" else "envvar" if variables == "true" else "cdi-annotations,cdi-cri"
        assert f"--device-list-strategy={way}" in agent["args"]
        hook = "--nvidia-cdi-hook-path=/usr/local/nvidia/toolkit/nvidia-cdi-hook"
        assert (hook in agent["args"]) == way.startswith("cdi")


def test_without_a_toolkit_of_its_own_the_agent_names_devices_as_every_toolkit_reads_them() -> None:
    agent = main_container({"toolkit": {"enabled": False}}, CONTAINERD, Operand.DEVICE_PLUGIN)
    assert agent is not None
    assert "--device-list-strategy=envvar" in agent["args"]


def test_the_agent_goes_by_the_device_plugins_files_and_the_policys_mig_strategy() -> None:
    usual = main_container({}, CONTAINERD, Operand.DEVICE_PLUGIN)
    spec = {
        "mig": {"strategy": "mixed"},
        "devicePlugin": {"config": {"name": "shared", "default": "halves"}},
        "gdrcopy": {"enabled": True},
    }
    found = main_container(spec, CONTAINERD, Operand.DEVICE_PLUGIN)
    assert usual is not None
    assert found is not None
    more = set(found["args"]) - set(usual["args"])
    assert more == {"--mig-strategy=mixed", "--config-dir=/configs", "--default-config=halves", "--gdrcopy-enabled"}
    assert "--mig-strategy=single" in usual["args"]
    assert {"name": "configs", "mountPath": "/configs", "readOnly": True} in found["volumeMounts"]


def test_containers_that_see_all_gpus_by_a_variable_are_privileged() -> None:
    """Else a toolkit that heeds it in these alone would show them none."""
    for each in rendered({}, runtimes=(CONTAINERD,)):
        if each.object["kind"] == "DaemonSet":
            pod = each.object["spec"]["template"]["spec"]
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                values = {one["name"]: one.get("value") for one in container.get("env") or ()}
                if values.get("NVIDIA_VISIBLE_DEVICES") not in (None, "void", "none"):
                    assert container["securityContext"]["privileged"], container["name"]


def test_instances_that_come_and_go_are_the_agents_business_alone() -> None:
    spec = {"mig": {"strategy": "on-demand"}}
    agent = main_container(spec, CONTAINERD, Operand.DEVICE_PLUGIN)
    assert agent is not None
    assert "--mig-strategy=on-demand" in agent["args"]
    told = {
        (each.operand, one["value"])
        for each in rendered(spec, runtimes=(CONTAINERD,))
        if each.object["kind"] == "DaemonSet"
        for pod in (each.object["spec"]["template"]["spec"],)
        for container in (*pod.get("initContainers", ()), *pod["containers"])
        for one in container.get("env") or ()
        if one["name"] == "MIG_STRATEGY"
    }
    assert told == {(Operand.GFD, "none"), (Operand.VALIDATOR, "none")}
