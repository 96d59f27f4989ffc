"""What a policy gives operands: images, security of pods, annotations, tolerations, relabelings, jobs."""

from typing import Any

import pytest

from purser.agent.settings import EnforcementChoice, FeatureOutlet
from purser.core.model import DeviceMode
from purser.core.names import UNHEALTHY_TAINT
from purser.core.sharing import MigStrategy
from purser.operator.policy.crd import schema_of
from purser.operator.policy.sections import DevicePluginSpec, MigSection

from .wanteds import IMAGE, RELABELING, container, daemon_set, host_folders, rendered, variables


def pods(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By DaemonSet: its pods' spec."""
    sets = (each.object for each in rendered(spec) if each.object["kind"] == "DaemonSet")
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in sets}


def test_security_of_pods_is_that_of_all_daemonsets_and_a_drivers_own_where_it_has_one() -> None:
    common = {"runAsUser": 0, "runAsNonRoot": False, "seLinuxOptions": {"level": "s0"}, "supplementalGroups": [5]}
    everywhere = pods({"daemonsets": {"podSecurityContext": common}})
    assert all(each["securityContext"] == common for each in everywhere.values())
    mixed = pods({"daemonsets": {"podSecurityContext": common}, "driver": {"podSecurityContext": {"fsGroup": 1}}})
    assert mixed.pop("purser-driver-a")["securityContext"] == {"fsGroup": 1}
    assert all(each["securityContext"] == common for each in mixed.values())
    assert all("securityContext" not in each for each in pods({}).values())


def test_monitors_relabel_as_configured_and_an_empty_text_is_one() -> None:
    monitor = {"enabled": True, "relabelings": [RELABELING, {"action": "labeldrop", "regex": "x", "modulus": 3}]}
    spec = {"operator": {"metrics": {"serviceMonitor": monitor}}, "dcgmExporter": {"serviceMonitor": monitor}}
    found = [each.object for each in rendered(spec) if each.object["kind"] == "ServiceMonitor"]
    assert len(found) == 2
    for each in found:
        [endpoint] = each["spec"]["endpoints"]
        assert endpoint["relabelings"] == monitor["relabelings"]


def test_the_exporters_annotations_are_on_its_pods() -> None:
    found = daemon_set("purser-dcgm-exporter-containerd", {"dcgmExporter": {"annotations": {"a": "b"}}})
    assert found["spec"]["template"]["metadata"]["annotations"]["a"] == "b"


def test_jobs_are_read_from_the_folder_that_the_batch_scheduler_writes() -> None:
    given = {"dcgmExporter": {"hpcJobMapping": {"enabled": True, "directory": "/jobs"}}}
    found = daemon_set("purser-dcgm-exporter-containerd", given)
    body = container("nvidia-dcgm-exporter", found)
    assert variables(body)["DCGM_HPC_JOB_MAPPING_DIR"] == "/jobs"
    assert host_folders(body, found)["/jobs"] == "/jobs"


def test_the_check_of_the_device_plugin_makes_no_pod_whatever_it_is_given() -> None:
    """Its account may make none, so that no node would ever be ready."""
    env = [{"name": "WITH_WORKLOAD", "value": "true"}, {"name": "OTHER", "value": "x"}]
    found = daemon_set("purser-operator-validator-containerd", {"validator": {"plugin": {"env": env}}})
    told = variables(container("plugin-validation", found))
    assert (told["WITH_WORKLOAD"], told["OTHER"]) == ("false", "x")


def test_every_operand_tolerates_the_taint_that_agents_may_set() -> None:
    taint = {"key": UNHEALTHY_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    agents = {"taintNodes": True}
    assert all(taint in each["tolerations"] for each in pods({"devicePlugin": agents}).values())
    for without in ({}, {"flavor": "nvidia", **agents}, {"enabled": False, **agents}):
        assert not any(taint in each["tolerations"] for each in pods({"devicePlugin": without}).values())


def test_words_of_the_agents_fields_are_those_of_its_options() -> None:
    words = {name: hint["enum"] for name, hint in schema_of(DevicePluginSpec)["properties"].items() if "enum" in hint}
    assert words["enforcement"] == list(EnforcementChoice)
    assert words["featureLabels"] == list(FeatureOutlet)
    assert schema_of(MigSection)["properties"]["strategy"]["enum"] == list(MigStrategy)
    assert set(words["mode"]) == {DeviceMode.SHARED, DeviceMode.WHOLE}


def test_operands_of_pursers_own_run_the_operators_image() -> None:
    for name in ("purser-device-plugin-containerd", "purser-mig-manager", "purser-gpu-discovery"):
        pod = daemon_set(name)["spec"]["template"]["spec"]
        assert [each["image"] for each in pod["containers"]] == [IMAGE]


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("purser-device-plugin-containerd", "devicePlugin"),
        ("purser-mig-manager", "migManager"),
        ("purser-gpu-discovery", "discovery"),
    ],
)
def test_each_is_pulled_as_its_own_section_says(name: str, section: str) -> None:
    told = {"image": "mirror.example/x/purser", "version": "9", "imagePullPolicy": "Always", "imagePullSecrets": ["s"]}
    pod = daemon_set(name, {section: told})["spec"]["template"]["spec"]
    [main] = pod["containers"]
    assert (main["image"], main["imagePullPolicy"]) == ("mirror.example/x/purser:9", "Always")
    assert pod["imagePullSecrets"] == [{"name": "s"}]


def test_discovery_has_resources_of_its_own_unless_others_are_given() -> None:
    [main] = daemon_set("purser-gpu-discovery")["spec"]["template"]["spec"]["containers"]
    assert main["resources"]["limits"] == {"memory": "128Mi"}
    given = {"discovery": {"resources": {"limits": {"memory": "1Gi"}}}}
    [main] = daemon_set("purser-gpu-discovery", given)["spec"]["template"]["spec"]["containers"]
    assert main["resources"] == {"limits": {"memory": "1Gi"}}


def test_agents_may_list_the_names_that_the_policy_adds() -> None:
    names = ["nvidia.com/gpu-0", "nvidia.com/mig-9g.1gb"]
    found = pods({"devicePlugin": {"managedResources": names}})
    said = [
        argument
        for each in found.values()
        for argument in each["containers"][0].get("args", ())
        if argument.startswith("--managed-resource")
    ]
    assert sorted(set(said)) == [f"--managed-resource={name}" for name in names]
