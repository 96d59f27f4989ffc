"""What people read of an import: what matters first, and nothing of what was off but one line."""

from typing import Any

import pytest

from purser.operator.policy.importing import import_policy

from .test_importing import MANAGER, nvidia

IMAGE = {"repository": "nvcr.io/nvidia/cloud-native", "image": "i", "version": "v1", "imagePullPolicy": "IfNotPresent"}
OPERATORS = {**IMAGE, "repository": "nvcr.io/nvidia", "image": "gpu-operator", "version": "v26.7.0"}
STOCK: dict[str, Any] = {
    "hostPaths": {"rootFS": "/", "driverInstallDir": "/run/nvidia/driver"},
    "operator": {"defaultRuntime": "docker", "runtimeClass": "nvidia", "initContainer": {}},
    "daemonsets": {
        "labels": {"helm.sh/chart": "gpu-operator-v26.7.0", "app.kubernetes.io/managed-by": "gpu-operator"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "system-node-critical",
        "updateStrategy": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "1"},
    },
    "validator": {**OPERATORS, "plugin": {"env": []}},
    "mig": {"strategy": "single"},
    "psa": {"enabled": False},
    "cdi": {"enabled": True},
    "driver": {
        "enabled": True,
        "useNvidiaDriverCRD": False,
        "kernelModuleType": "auto",
        "usePrecompiled": False,
        **IMAGE,
        "startupProbe": {
            "initialDelaySeconds": 60,
            "periodSeconds": 10,
            "timeoutSeconds": 60,
            "failureThreshold": 120,
        },
        "rdma": {"enabled": False, "useHostMofed": False},
        "manager": IMAGE,
        "repoConfig": {"configMapName": ""},
        "certConfig": {"name": ""},
        "licensingConfig": {"secretName": "", "nlsEnabled": True},
        "virtualTopology": {"config": ""},
        "kernelModuleConfig": {"name": ""},
        "secretEnv": "",
        "upgradePolicy": {
            "autoUpgrade": True,
            "maxParallelUpgrades": 1,
            "maxUnavailable": "25%",
            "waitForCompletion": {"timeoutSeconds": 0, "podSelector": ""},
            "podDeletion": {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
            "drain": {
                "enable": False,
                "force": False,
                "podSelector": "",
                "timeoutSeconds": 300,
                "deleteEmptyDir": False,
            },
        },
    },
    "vgpuManager": {"enabled": False, **IMAGE, "driverManager": MANAGER},
    "kataManager": {"enabled": False, "config": {}, **IMAGE},
    "vfioManager": {"enabled": True, **IMAGE, "driverManager": MANAGER},
    "vgpuDeviceManager": {"enabled": True, **IMAGE, "config": {"default": "default"}},
    "ccManager": {"enabled": True, "defaultMode": "on", **IMAGE},
    "sandboxWorkloads": {"enabled": False, "defaultWorkload": "container", "mode": "kubevirt"},
    "sandboxDevicePlugin": {"enabled": True, **IMAGE},
    "kataSandboxDevicePlugin": {"enabled": True, **IMAGE},
    "toolkit": {"enabled": True, **IMAGE, "installDir": "/usr/local/nvidia"},
    "devicePlugin": {"enabled": True, **IMAGE},
    "dcgm": {"enabled": False, **IMAGE},
    "dcgmExporter": {
        "enabled": True,
        **IMAGE,
        "serviceMonitor": {"enabled": True, "interval": "15s", "scrapeTimeout": "10s", "honorLabels": False},
        "service": {"internalTrafficPolicy": "Cluster"},
    },
    "gfd": {"enabled": True, **IMAGE},
    "migManager": {"enabled": True, **IMAGE, "config": {"name": "", "default": "all-disabled"}, "gpuClientsConfig": {}},
    "nodeStatusExporter": {"enabled": False, **OPERATORS},
    "gds": {"enabled": False, **IMAGE},
    "gdrcopy": {"enabled": False, **IMAGE},
}
"""A ClusterPolicy as NVIDIA's chart makes it of its own values."""


def test_a_stock_install_loses_three_things_and_what_is_off_takes_a_line_each_way() -> None:
    imported = import_policy([nvidia(STOCK)])
    assert [each.partition(":")[0] for each in imported.lost] == [
        "spec.migManager.image, .repository, .version",
        "spec.operator.defaultRuntime",
        "spec.sandboxWorkloads, spec.vfioManager, spec.sandboxDevicePlugin, spec.vgpuManager, spec.vgpuDeviceManager,"
        " spec.kataSandboxDevicePlugin, spec.ccManager, spec.kataManager",
    ]
    assert [each.partition(":")[0] for each in imported.idle] == [
        "spec.dcgm, spec.nodeStatusExporter, spec.gds, spec.gdrcopy"
    ]


@pytest.mark.parametrize(
    ("mode", "loud"),
    [
        ("kubevirt", ["sandboxDevicePlugin", "sandboxWorkloads", "vfioManager", "vgpuDeviceManager"]),
        ("kata", ["ccManager", "kataSandboxDevicePlugin", "sandboxWorkloads", "vfioManager", "vgpuDeviceManager"]),
    ],
)
def test_an_enabled_section_that_is_not_pursers_is_reported_first_and_once(mode: str, loud: list[str]) -> None:
    sandbox = {"sandboxWorkloads": {"enabled": True, "mode": mode}}
    lost = import_policy([nvidia({**STOCK, **sandbox})]).lost
    first = lost[: len(loud)]
    assert [each.partition(":")[0] for each in first] == [f"spec.{name}" for name in loud]
    assert all("ENABLED, and not supported" in each for each in first)
    assert not any("ENABLED" in each for each in lost[len(loud) :])


def test_the_same_reason_within_a_section_is_one_line_in_the_order_in_which_people_count() -> None:
    args = {"migManager": {"args": ["-x"], "image": "i"}, "toolkit": {"a10": 1, "a9": 1, "b": {"c": 1}}}
    assert import_policy([nvidia(args)]).lost == (
        "spec.migManager.args, .image: Purser uses its own MIG worker instead of NVIDIA's MIG manager",
        "spec.toolkit.a9, .a10: Purser has no such setting",
        "spec.toolkit.b.c: Purser has no such setting",
    )


def test_a_switch_of_something_that_purser_never_does_is_lost_only_where_it_is_on() -> None:
    switches = {"cdi": {"nriPluginEnabled": False}, "psa": {"enabled": False}, "dcgm": {"hostPort": 5555}}
    [told] = import_policy([nvidia(switches)]).lost
    assert told.startswith("spec.dcgm.hostPort: ")
    [told] = import_policy([nvidia({"cdi": {"nriPluginEnabled": True}})]).lost
    assert told.startswith("spec.cdi.nriPluginEnabled: the NRI plugin is not supported")


def test_nodes_of_a_maintenance_operator_are_reported() -> None:
    other = {"apiVersion": "maintenance.nvidia.com/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "a"}}
    [told] = import_policy([nvidia({}), other]).lost
    assert told.endswith("requestor mode is not supported")


def test_sections_of_an_odd_type_are_reported_as_fields_that_nobody_knows() -> None:
    assert import_policy([nvidia({"vfioManager": "on", "validator": "x", "sandboxWorkloads": [1]})]).lost == (
        "spec.sandboxWorkloads, .vfioManager: Purser has no such setting",
        "spec.validator: this is a text, and has to be a section with fields",
    )
