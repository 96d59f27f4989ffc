"""What people read of an import: what matters first, and nothing of what was off but one line."""

from typing import Any

import pytest
import yaml
from tests.reported_files import reported

from purser.operator.names import WORKLOAD_LABEL
from purser.operator.policy.importing import import_policy
from purser.operator.policy.importing.sections import Rank

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


def test_a_stock_install_loses_four_things_and_what_is_off_takes_a_line_each_way() -> None:
    imported = import_policy([nvidia(STOCK)])
    assert [each.partition(":")[0] for each in imported.lost] == [
        "spec.migManager.image, .repository, .version",
        "spec.operator.defaultRuntime",
        "spec.daemonsets.labels.helm.sh/chart, spec.daemonsets.labels.app.kubernetes.io/managed-by",
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
    assert all("ENABLED, but not supported" in each for each in first)
    assert not any("ENABLED" in each for each in lost[len(loud) :])
    assert all(each.partition("; use instead: ")[2] for each in first)


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
        "spec.sandboxWorkloads: must be an object, not a list",
        "spec.validator: must be an object, not a string",
        "spec.vfioManager: Purser has no such setting",
    )


def ranked(*objects: dict[str, Any]) -> list[tuple[Rank, str]]:
    return [(each.rank, each.text.partition(":")[0]) for each in import_policy(objects).losses]


def test_what_is_lost_is_sorted_by_what_it_does_the_worst_first() -> None:
    spec = {
        "toolkit": {"tolerations": [{"key": "team", "operator": "Exists"}], "holograms": 1},
        "dcgm": {"affinity": {"nodeAffinity": {}}, "nodeSelector": {"team": "vision"}},
        "cdi": {"nriPluginEnabled": True},
        "vfioManager": {"enabled": False, "image": "x"},
    }
    assert ranked(nvidia(spec)) == [
        (Rank.RUNS_DIFFERENTLY, "spec.dcgm.affinity"),
        (Rank.RUNS_DIFFERENTLY, "spec.dcgm.nodeSelector"),
        (Rank.NOT_DEPLOYED, "spec.toolkit.tolerations"),
        (Rank.FEATURE, "spec.cdi.nriPluginEnabled"),
        (Rank.SETTING, "spec.toolkit.holograms"),
        (Rank.OFF, "spec.vfioManager"),
    ]


def test_where_an_operand_ran_is_written_with_labels_instead() -> None:
    placed = {"nodeSelector": {"team": "vision", "gpu": "on"}}
    [told] = import_policy([nvidia({"toolkit": placed})]).lost
    assert told == (
        "spec.toolkit.nodeSelector: container-toolkit runs on every GPU node, even on nodes that this field excluded"
        "; use instead: kubectl label nodes -l 'team!=vision' nvidia.com/gpu.deploy.container-toolkit=false"
        " && kubectl label nodes -l 'gpu!=on' nvidia.com/gpu.deploy.container-toolkit=false"
    )
    [told] = import_policy([nvidia({"daemonsets": placed})]).lost
    assert "kubectl label nodes -l 'gpu!=on' nvidia.com/gpu.deploy.operands=false" in told


def test_tolerations_of_one_operand_are_lost_only_where_not_all_have_them() -> None:
    mine, all_have = {"key": "team", "operator": "Exists"}, {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    spec = {"daemonsets": {"tolerations": [all_have]}, "toolkit": {"tolerations": [all_have, mine]}}
    [told] = import_policy([nvidia(spec)]).lost
    assert told == (
        "spec.toolkit.tolerations: container-toolkit will no longer run on nodes whose taints only this field tolerated"
        "; use instead, for all operands, in addition to what is there: "
        'spec.daemonsets.tolerations: [{"key":"team","operator":"Exists"}]'
    )
    assert not import_policy([nvidia({**spec, "toolkit": {"tolerations": [all_have]}})]).lost
    assert import_policy([nvidia({"driver": {"tolerations": [mine]}})]).policy["spec"]["driver"]["tolerations"] == [
        mine
    ]


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        pytest.param({"gfd": {"migStrategy": "single"}}, "single", id="of feature discovery"),
        pytest.param({"devicePlugin": {"args": ["-v", "--mig-strategy=mixed"]}}, "mixed", id="an argument"),
        pytest.param({"devicePlugin": {"args": ["--mig-strategy", "mixed"]}}, "mixed", id="an argument of two words"),
        pytest.param({"devicePlugin": {"env": [{"name": "MIG_STRATEGY", "value": "single"}]}}, "single", id="variable"),
        pytest.param({"gfd": {"env": [{"name": "MIG_STRATEGY", "value": "single"}]}}, "single", id="its variable"),
        pytest.param(
            {"gfd": {"migStrategy": "single"}, "devicePlugin": {"args": ["--mig-strategy=mixed"]}},
            "mixed",
            id="what the plugin lists counts more",
        ),
        pytest.param({"mig": {}, "gfd": {"migStrategy": "odd"}}, "none", id="no word for one"),
        pytest.param({"gfd": {"env": "MIG_STRATEGY"}, "devicePlugin": {"args": 1}}, "none", id="odd types"),
    ],
)
def test_a_mig_strategy_that_stands_elsewhere_is_that_of_the_policy(spec: dict[str, Any], strategy: str) -> None:
    assert import_policy([nvidia(spec)]).policy["spec"]["mig"]["strategy"] == strategy


def test_a_strategy_beside_another_one_is_told() -> None:
    imported = import_policy([nvidia({"mig": {"strategy": "mixed"}, "gfd": {"migStrategy": "single"}})])
    assert imported.policy["spec"]["mig"]["strategy"] == "mixed"
    assert imported.lost == ("spec.gfd.migStrategy: spec.mig.strategy applies to all operands",)


def test_the_reported_policy_keeps_its_strategy_and_says_what_to_write_of_the_rest() -> None:
    imported = import_policy([yaml.safe_load(reported("gfd-strategy.yaml").read_text())])
    assert imported.policy["spec"]["mig"]["strategy"] == "single"
    assert [each.rank for each in imported.losses] == [Rank.RUNS_DIFFERENTLY, Rank.NOT_DEPLOYED]
    assert all("use instead" in each for each in imported.lost)


def test_labels_of_nvidias_chart_are_not_those_of_pursers_objects() -> None:
    own = {"team": "vision"}
    for section in ("daemonsets", "operator"):
        spec = {section: {"labels": {**STOCK["daemonsets"]["labels"], **own}}}
        assert import_policy([nvidia(spec)]).policy["spec"][section]["labels"] == own


@pytest.mark.parametrize(
    ("sandbox", "kept"),
    [
        ({"enabled": True, "defaultWorkload": "vm-passthrough"}, {"defaultWorkload": "vm-passthrough"}),
        ({"enabled": True}, None),
        ({"enabled": False, "defaultWorkload": "vm-vgpu"}, None),
        ({"enabled": True, "defaultWorkload": "vm"}, None),
    ],
    ids=["on", "its default", "off", "an odd word"],
)
def test_the_default_workload_is_taken_over_where_it_counted(sandbox: dict[str, Any], kept: Any) -> None:
    imported = import_policy([nvidia({"sandboxWorkloads": sandbox})])
    assert imported.policy["spec"].get("sandboxWorkloads") == kept
    assert bool([each for each in imported.losses if each.rank is Rank.NOT_DEPLOYED]) is sandbox["enabled"]


@pytest.mark.parametrize("enabled", [True, False])
def test_nodes_whose_label_nvidias_operator_ignored_are_named(enabled: bool) -> None:
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}", "labels": {WORKLOAD_LABEL: word}}}
        for i, word in enumerate(("vm-passthrough", "container", "vm-vgpu"))
    ]
    losses = import_policy([nvidia({"sandboxWorkloads": {"enabled": enabled}}), *nodes]).losses
    told = [each for each in losses if each.text.startswith("nodes n0, n2: ")]
    assert [each.rank for each in told] == ([] if enabled else [Rank.NOT_DEPLOYED])
    assert all("kubectl label nodes n0 n2 nvidia.com/gpu.workload.config-" in each.text for each in told)
    assert not any("no counterpart" in each.text for each in losses)
