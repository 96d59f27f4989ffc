"""The Helm chart, rendered by Helm itself and validated against the API schemas of several Kubernetes versions."""

import json
import os
import subprocess
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import msgspec
import pytest
import yaml
from tests.tiers import some

from purser.agent.settings import AgentSettings
from purser.core.dialects import RESOURCES
from purser.core.dialects.managed import ignored_resources, managed_resources
from purser.core.health.state import HealthState
from purser.core.model import GpuPolicy, NodePolicy
from purser.core.names import CA_CONFIGMAP, GRANT_KEY_CONFIGMAP, GRANT_KEY_SECRET, KUBE_SCHEDULER_LEASE, TLS_SECRET
from purser.core.policy.words import gpu_policies, node_policies
from purser.operator.gates.facts import CONTAINER, WORKLOADS
from purser.operator.names import WORKLOAD_LABEL
from purser.options import settings_from

from .commands import assert_parses

pytestmark = pytest.mark.processes

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "purser"
VERSIONS = ["1.25", "1.28", "1.32", "1.36", kubernetes_validate.utils.major_minor(kubernetes_validate.latest_version())]
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one replica without the webhook": {"scheduler": {"replicas": 1}, "webhook": {"enabled": False}},
    "everything set": {
        "image": {"repository": "example.org/purser", "tag": "x", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "memoryUnits": ["aliyun.com/gpu-mem=1", "volcano.sh/vgpu-memory=10"],
        "vendors": ["Hygon DCU"],
        "vendorAccounts": ["system:serviceaccount:kube-system:hami-dcu"],
        "agent": {
            "nodeSelector": {"gpu": "on"},
            "tolerations": [{"operator": "Exists"}],
            "mode": "whole",
            "runtimeClassName": "nvidia",
            "passDeviceSpecs": True,
            "metricsAlsoAs": ["dcgm", "hami"],
            "evictOverUsers": True,
            "evictFromUnhealthyGpus": True,
            "taintNodes": True,
            "cordonNodes": True,
            "featureLabels": "file",
            "resetGpus": True,
            "env": {"DP_DISABLE_HEALTHCHECKS": "48,63"},
            "enforcement": "mps",
            "mpsExclusive": True,
            "hamiCoreImage": "example.org/hami:x",
            "kubeletDir": "/var/lib/k0s/kubelet",
            "kubeletConfig": "/etc/kubernetes/kubelet.yaml",
            "affinity": {"nodeAffinity": {}},
            "sriov": {"config": "sriovdp-config", "resourcePrefix": "openshift.io", "useCdi": True},
        },
        "scheduler": {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
            ],
            "nodePolicy": "fragmentation=3,spread=0.5",
            "gpuPolicy": "numa,spread",
            "authority": "exclusive",
            "decisionLog": {"enabled": True, "anonymous": True},
            "nodeSelector": {"control": "plane"},
            "tolerations": [{"operator": "Exists"}],
        },
        "webhook": {
            "failurePolicy": "Fail",
            "clientCA": {"configMap": "api-server-ca", "key": "ca.pem", "names": ["kube-apiserver", "other"]},
        },
        "networkPolicy": {
            "webhookCIDRs": ["10.0.0.0/8", "fd00::/8"],
            "readAPICIDRs": ["192.0.2.0/24"],
            "webPeers": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
            "metricsNamespaces": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
        },
    },
    "with web pages": {
        "readAPI": {"enabled": True},
        "web": {
            "enabled": True,
            "replicas": 2,
            "nodeSelector": {"control": "plane"},
            "tolerations": [{"operator": "Exists"}],
        },
    },
    "without network policies": {"networkPolicy": {"enabled": False}},
    "with the operator": {"operator": {"enabled": True}},
    "with the operator, everything set": {
        "image": {"repository": "example.org/purser", "tag": "x", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "operator": {
            "enabled": True,
            "replicas": 2,
            "nodeSelector": {"control": "plane"},
            "tolerations": [{"operator": "Exists"}],
            "metricsPort": 1234,
        },
        "clusterPolicy": {"name": "gpus", "spec": {"driver": {"enabled": False}, "devicePlugin": {"slots": 4}}},
    },
}


def render(values: dict[str, Any], kubernetes: str = "1.32") -> list[dict[str, Any]]:
    given = values.get("scheduler", {})
    scheduler = {**given, "kubeScheduler": {**given.get("kubeScheduler", {}), "tag": f"v{kubernetes}.0"}}
    documents: list[dict[str, Any]] = msgspec.json.decode(
        _rendered(json.dumps({**values, "scheduler": scheduler}, sort_keys=True))
    )
    return documents


@cache
def _rendered(values: str) -> bytes:
    """Rendered once, as JSON that each caller decodes again: some tests write into what they get."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(json.loads(values), name="purser", namespace="purser-system")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return msgspec.json.encode([each for text in texts for each in yaml.load_all(text, yaml.CSafeLoader) if each])


def find(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [found] = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


@pytest.mark.usefixtures("schemas_read_once")
@pytest.mark.parametrize(
    ("variant", "version"),
    some(
        [
            *((variant, VERSIONS[-1]) for variant in VARIANTS),
            *((variant, version) for variant in ("everything set", "with the operator") for version in VERSIONS[:-1]),
        ],
        every=5,
    ),
)
def test_every_object_fits_the_schema_of_the_kubernetes_version(variant: str, version: str) -> None:
    documents = render(VARIANTS[variant], version)
    assert len(documents) > 10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for document in documents:
            if document["kind"] != "ClusterPolicy":
                kubernetes_validate.validate(document, version, strict=True)


def test_helm_lint_finds_nothing() -> None:
    report = helm_python.lint(CHART, {})
    assert [m for m in report["messages"] if m["severity"] in ("WARNING", "ERROR")] == []


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"agent": {"mode": "split"}}, id="an unknown mode"),
        pytest.param({"agent": {"slots": 0}}, id="no slots"),
        pytest.param({"agent": {"env": {"NODE_NAME": "another"}}}, id="a variable that is the chart's own"),
        pytest.param({"agent": {"env": {"DP_DISABLE_HEALTHCHECKS": 48}}}, id="a number for a variable"),
        pytest.param({"scheduler": {"nodePolicy": "best"}}, id="an unknown policy for nodes"),
        pytest.param({"scheduler": {"nodePolicy": "spread=-1"}}, id="a weight that is not a number"),
        pytest.param({"scheduler": {"nodePolicy": "spread,"}}, id="no policy after a comma"),
        pytest.param({"scheduler": {"nodePolicy": ",".join(list(NodePolicy)[:5])}}, id="too many policies"),
        pytest.param({"scheduler": {"gpuPolicy": "best"}}, id="an unknown policy for GPUs"),
        pytest.param({"scheduler": {"gpuPolicy": "purser,numa"}}, id="policies for GPUs that do not chain"),
        pytest.param({"sheduler": {}}, id="a misspelt section"),
        pytest.param({"operator": {"enabled": "yes"}}, id="a text for a switch"),
        pytest.param({"clusterPolicy": {"name": "A b"}}, id="a name that is none"),
        pytest.param({"webhook": {"clientCA": "ca"}}, id="a text for a CA's place"),
        pytest.param({"networkPolicy": {"webhookCIDRs": ["10.0.0.1"]}}, id="an address for a network"),
        pytest.param({"networkPolicy": {"readAPICIDRs": ["10.0.0.1"]}}, id="an address for a network of readers"),
        pytest.param(
            {"scheduler": {"kubeScheduler": {"extenders": [{"urlPrefix": "https://o", "bindVerb": "bind"}]}}},
            id="a second extender that binds",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmError), helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(values)


@pytest.mark.parametrize(
    "scheduler",
    some(
        [
            *({"nodePolicy": name.value} for name in NodePolicy),
            *({"gpuPolicy": name.value} for name in GpuPolicy),
            *({"gpuPolicy": text} for text in ("mutex,purser", "purser,mutex", "topology", "mutex,numa,spread")),
            {"nodePolicy": "fragmentation=3,spread=0.5,purser=1000,best-fit"},
        ],
        every=10,
    ),
    ids=lambda values: next(iter(values.values())),
)
def test_policies_that_the_scheduler_reads_are_values(scheduler: dict[str, str]) -> None:
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema({"scheduler": scheduler})
    spec = find(render({"scheduler": scheduler}), "Deployment", "purser-scheduler")["spec"]["template"]["spec"]
    given = dict(argument.partition("=")[::2] for argument in spec["containers"][0]["args"])
    assert set(scheduler.values()) <= {given["--node-policy"], given["--gpu-policy"]}
    assert node_policies(given["--node-policy"])
    assert gpu_policies(given["--gpu-policy"])


@pytest.mark.parametrize(
    ("kubernetes", "api"),
    [("1.20", "v1beta1"), ("1.22", "v1beta2"), ("1.24", "v1beta3"), ("1.25", "v1"), ("1.36", "v1")],
)
def test_kube_scheduler_gets_a_configuration_that_its_version_reads(kubernetes: str, api: str) -> None:
    documents = render({}, kubernetes)
    text = find(documents, "ConfigMap", "purser-kube-scheduler")["data"]["config.yaml"]
    configuration = yaml.safe_load(text)
    assert configuration["apiVersion"] == f"kubescheduler.config.k8s.io/{api}"
    assert configuration["percentageOfNodesToScore"] == 100
    [profile] = configuration["profiles"]
    assert ("pluginConfig" in profile) is (api == "v1beta1")  # of which 1.20 weighs one candidate, lest it crash
    assert configuration["extenders"][0]["nodeCacheCapable"] is True
    [image] = [
        c["image"]
        for c in find(documents, "Deployment", "purser-scheduler")["spec"]["template"]["spec"]["containers"]
        if c["name"] == "kube-scheduler"
    ]
    assert image.endswith(f":v{kubernetes}.0")


def test_further_extenders_are_asked_before_pursers_which_binds() -> None:
    others = {"profiles": [{"schedulerName": "other"}], "extenders": [{"urlPrefix": "https://example.org"}]}
    documents = render({"scheduler": {"kubeScheduler": others}})
    configuration = yaml.safe_load(find(documents, "ConfigMap", "purser-kube-scheduler")["data"]["config.yaml"])
    assert [each["schedulerName"] for each in configuration["profiles"]] == ["purser-scheduler", "other"]
    assert [each.get("bindVerb") for each in configuration["extenders"]] == [None, "bind"]


@pytest.mark.parametrize(("authority", "weight"), [("shared", 1), ("exclusive", 100)])
def test_an_exclusive_policy_outweighs_kube_schedulers_own_scores(authority: str, weight: int) -> None:
    documents = render({"scheduler": {"authority": authority}})
    (text,) = find(documents, "ConfigMap", "purser-kube-scheduler")["data"].values()
    assert yaml.safe_load(text)["extenders"][0]["weight"] == weight


def test_the_agents_variables_are_those_of_nvidias_device_plugin_beside_its_own() -> None:
    given = {"DP_DISABLE_HEALTHCHECKS": "48", "DP_ENABLE_HEALTHCHECKS": "all", "MIG_STRATEGY": "mixed"}
    agent = find(render({"agent": {"env": given}}), "DaemonSet", "purser-agent")
    [container] = agent["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert given.items() < variables.items()
    read = settings_from(AgentSettings, {"node-name": "n"}, variables)
    assert read.xid_policy.state_after(48) is HealthState.HEALTHY
    assert not read.xid_policy.state_after(94).takes_pods


def test_only_the_agent_is_privileged() -> None:
    privileged = [
        (document["metadata"]["name"], container["name"])
        for document in render({})
        if document["kind"] in ("Deployment", "DaemonSet")
        for container in document["spec"]["template"]["spec"]["containers"]
        if container.get("securityContext", {}).get("privileged")
    ]
    assert privileged == [("purser-agent", "agent")]


def test_the_extender_manages_the_resources_of_every_dialect_and_kube_scheduler_counts_nvidias() -> None:
    named = ["Hygon DCU", "AMD"]
    values = {"scheduler": {"kubeScheduler": {"managedResources": ["nvidia.com/gpu.small"]}}, "vendors": named}
    config = yaml.safe_load(find(render(values), "ConfigMap", "purser-kube-scheduler")["data"]["config.yaml"])
    every = config["extenders"][0]["managedResources"]
    ignored = {each["name"] for each in every if each.get("ignoredByScheduler")}
    assert ignored == {resource for name in named for resource in ignored_resources()[name]}
    assert "ignoredByScheduler" not in str(find(render({}), "ConfigMap", "purser-kube-scheduler"))
    managed = [each["name"] for each in every if not each.get("ignoredByScheduler")]
    assert managed == [*managed_resources(), "nvidia.com/gpu.small"]
    assert {*RESOURCES, "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.me", "nvidia.com/mig-1g.5gb.shared"} < set(
        managed
    )


def test_names_that_kube_scheduler_is_to_ask_about_are_said_to_whoever_lists_gpus_by_them() -> None:
    """The same value, for kube-scheduler, agents, scheduler, and agents of the operator."""
    name = "nvidia.com/gpu.small"
    values = {"scheduler": {"kubeScheduler": {"managedResources": [name]}}}
    documents = render(values)
    for kind, of in (("DaemonSet", "purser-agent"), ("Deployment", "purser-scheduler")):
        containers = find(documents, kind, of)["spec"]["template"]["spec"]["containers"]
        args = next(each["args"] for each in containers if f"--managed-resource={name}" in each.get("args", ()))
        assert args.count(f"--managed-resource={name}") == 1
    operated = render({**values, "operator": {"enabled": True}, "clusterPolicy": {"create": True}})
    policy = next(each for each in operated if each["kind"] == "ClusterPolicy")
    assert policy["spec"]["devicePlugin"]["managedResources"] == [name]


def test_the_agent_is_root_and_nothing_else_is() -> None:
    [agent] = find(render({}), "DaemonSet", "purser-agent")["spec"]["template"]["spec"]["containers"]
    assert agent["securityContext"]["runAsUser"] == 0
    scheduler = find(render({}), "Deployment", "purser-scheduler")["spec"]["template"]["spec"]
    assert scheduler["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("evicts", [False, True])
@pytest.mark.parametrize(
    ("value", "option"),
    [("evictOverUsers", "--evict-over-users"), ("evictFromUnhealthyGpus", "--evict-from-unhealthy-gpus")],
)
def test_the_agent_sees_the_hosts_processes_and_may_evict_only_where_that_is_asked_for(
    evicts: bool, value: str, option: str
) -> None:
    documents = render({"agent": {value: evicts}})
    pod = find(documents, "DaemonSet", "purser-agent")["spec"]["template"]["spec"]
    assert pod["hostPID"] is True
    assert (option in pod["containers"][0]["args"]) is evicts
    rules = find(documents, "ClusterRole", "purser-agent")["rules"]
    assert ({"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]} in rules) is evicts


def test_agents_with_mps_daemons_are_replaced_by_hand_and_have_room_for_them() -> None:
    agent = find(render({"agent": {"enforcement": "mps"}}), "DaemonSet", "purser-agent")["spec"]
    assert agent["updateStrategy"] == {"type": "OnDelete"}
    [container] = agent["template"]["spec"]["containers"]
    assert "--enforcement=mps" in container["args"]
    assert container["resources"] == {"requests": {"cpu": "20m", "memory": "80Mi"}}
    limits = {"memory": "2Gi"}
    wanted = find(
        render({"agent": {"enforcement": "mps", "resources": {"limits": limits}}}), "DaemonSet", "purser-agent"
    )
    assert wanted["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == limits


def test_hami_cores_files_are_replaced_and_never_written_in_place(tmp_path: Path) -> None:
    """Programs that run have them open."""
    assert "initContainers" not in find(render({}), "DaemonSet", "purser-agent")["spec"]["template"]["spec"]
    values = {"hamiCoreImage": "example.org/hami:x", "hamiCoreDir": "/opt/vgpu"}
    pod = find(render({"agent": values}), "DaemonSet", "purser-agent")["spec"]["template"]["spec"]
    [copier] = pod["initContainers"]
    assert {"name": "hami-core", "hostPath": {"path": "/opt/vgpu", "type": "DirectoryOrCreate"}} in pod["volumes"]
    image, host = tmp_path / "image", tmp_path / "host"
    image.mkdir()
    host.mkdir()
    script = copier["command"][-1].replace("/k8s-vgpu/lib/nvidia", str(image)).replace("/hami-core", str(host))

    def copy() -> None:
        subprocess.run(["sh", "-ec", script], check=True)

    (image / "libvgpu.so.v1").write_text("one")
    copy()
    copied = host / "libvgpu.so"
    assert (copied.read_text(), copied.stat().st_mode & 0o777) == ("one", 0o755)
    assert (host / "ld.so.preload").read_text() == "/usr/local/vgpu/libvgpu.so\n"
    with copied.open() as running:
        copy()
        assert copied.stat().st_ino == os.fstat(running.fileno()).st_ino
        (image / "libvgpu.so.v1").rename(image / "libvgpu.so.v2")
        (image / "libvgpu.so.v2").write_text("two")
        copy()
        assert (running.read(), copied.read_text()) == ("one", "two")
    assert sorted(path.name for path in host.iterdir()) == ["ld.so.preload", "libvgpu.so"]
    (image / "libvgpu.so.v2").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        copy()


def test_kubelets_folder_for_plugins_is_where_every_kubelet_has_it() -> None:
    spec = find(render(VARIANTS["everything set"]), "DaemonSet", "purser-agent")["spec"]["template"]["spec"]
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    assert paths["device-plugins"] == "/var/lib/kubelet/device-plugins"
    assert paths["pod-resources"] == "/var/lib/k0s/kubelet/pod-resources"


def test_without_agents_the_chart_brings_nothing_of_theirs() -> None:
    documents = render({"agent": {"enabled": False}})
    assert not [d for d in documents if d["kind"] == "DaemonSet" or d["metadata"]["name"] == "purser-agent"]


def test_a_digest_counts_instead_of_the_tag() -> None:
    digest = f"sha256:{'0' * 64}"
    documents = render({"image": {"digest": digest}, "scheduler": {"kubeScheduler": {"digest": digest}}})
    spec = find(documents, "Deployment", "purser-scheduler")["spec"]["template"]["spec"]
    images = [each["image"] for each in spec["containers"]]
    assert images == [f"purser@{digest}", f"registry.k8s.io/kube-scheduler@{digest}"]


@pytest.mark.parametrize(
    ("certificate", "secret"),
    [
        ({"secret": "mine"}, "mine"),
        ({"issuerRef": {"name": "internal", "kind": "ClusterIssuer"}}, "purser-webhook-tls"),
    ],
    ids=["a Secret", "cert-manager"],
)
def test_a_certificate_of_others_is_mounted_and_served(certificate: dict[str, Any], secret: str) -> None:
    documents = render({"webhook": {"certificate": certificate}})
    spec = find(documents, "Deployment", "purser-scheduler")["spec"]["template"]["spec"]
    assert {"name": "certificate", "secret": {"secretName": secret}} in spec["volumes"]
    [purser, _] = spec["containers"]
    assert_parses(purser["args"])
    [folder] = [each.partition("=")[2] for each in purser["args"] if each.startswith("--certificate-folder=")]
    assert [each["mountPath"] for each in purser["volumeMounts"] if each["name"] == "certificate"] == [folder]
    made = [each["spec"] for each in documents if each["kind"] == "Certificate"]
    assert [(each["secretName"], each["dnsNames"]) for each in made] == (
        [(secret, ["purser-webhook.purser-system.svc"])] if "issuerRef" in certificate else []
    )


@pytest.mark.parametrize("volume", [{}, {"persistentVolumeClaim": {"claimName": "decisions"}}])
def test_a_decision_log_has_a_volume_that_the_scheduler_may_write_to(volume: dict[str, Any]) -> None:
    told = {"enabled": True, "fileMiB": 8, "files": 3, "oneIn": 10, "anonymous": True, "volume": volume}
    spec = find(render({"scheduler": {"decisionLog": told}}), "Deployment", "purser-scheduler")
    spec = spec["spec"]["template"]["spec"]
    container = spec["containers"][0]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "decision-log")
    assert f"--decision-log-folder={mount['mountPath']}" in container["args"]
    assert {"--decision-log-files=3", "--decision-log-one-in=10", "--decision-log-anonymous"} <= set(container["args"])
    assert {"name": "decision-log", **(volume or {"emptyDir": {}})} in spec["volumes"]
    assert spec["securityContext"].get("fsGroup") == (65532 if volume else None)


def test_what_yaml_would_take_for_something_else_arrives_as_it_was_given() -> None:
    odd = "/x: {y}, # z"
    documents = render(
        {
            "agent": {
                "priorityClassName": "10",
                "runtimeClassName": "1e3",
                **dict.fromkeys(("driverRoot", "kubeletDir", "kubeletConfig", "hamiCoreDir"), odd),
            },
            "scheduler": {
                "priorityClassName": "no",
                "adoptSchedulerNames": [odd],
                "serveSchedulerNames": [odd],
                "nodesToScore": 2_000_000,
            },
            "webhook": {"clientCA": {"secret": "7", "names": ["O=x: y # z"]}, "certificate": {"secret": "8"}},
        }
    )
    agent = find(documents, "DaemonSet", "purser-agent")["spec"]["template"]["spec"]
    assert (agent["priorityClassName"], agent["runtimeClassName"]) == ("10", "1e3")
    options = {f"--{name}=/host{odd}" for name in ("driver-root", "kubelet-dir", "kubelet-config")}
    assert {*options, f"--hami-core-dir={odd}"} <= set(agent["containers"][0]["args"])
    assert f"{odd}/pod-resources" in {volume["hostPath"]["path"] for volume in agent["volumes"]}
    scheduler = find(documents, "Deployment", "purser-scheduler")["spec"]["template"]["spec"]
    assert scheduler["priorityClassName"] == "no"
    options = {
        f"--adopt-scheduler-name={odd}",
        f"--serve-scheduler-name={odd}",
        "--nodes-to-score=2000000",
        "--webhook-client-name=O=x: y # z",
    }
    assert options <= set(scheduler["containers"][0]["args"])
    secrets = {volume["secret"]["secretName"] for volume in scheduler["volumes"] if "secret" in volume}
    assert secrets == {"7", "8"}
    operator = render({"operator": {"enabled": True, "priorityClassName": "0"}})
    for kind, name in (("Deployment", "purser-operator"), ("Job", "purser-remove-stack")):
        assert find(operator, kind, name)["spec"]["template"]["spec"]["priorityClassName"] == "0"


@pytest.mark.parametrize(("part", "kind"), [("scheduler", "Deployment"), ("agent", "DaemonSet")])
def test_an_affinity_of_ones_own_replaces_the_charts(part: str, kind: str) -> None:
    affinity = {"nodeAffinity": {}}
    spec = find(render({part: {"affinity": affinity}}), kind, f"purser-{part}")["spec"]
    assert spec["template"]["spec"]["affinity"] == affinity


def test_an_agent_stays_away_from_nodes_whose_gpus_are_for_virtual_machines() -> None:
    spec = find(render({}), "DaemonSet", "purser-agent")["spec"]["template"]["spec"]
    [term] = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    virtual = [each for each in WORKLOADS if each != CONTAINER]
    assert term["matchExpressions"] == [{"key": WORKLOAD_LABEL, "operator": "NotIn", "values": virtual}]


@pytest.mark.parametrize("operator", [False, True])
def test_every_port_for_metrics_is_found_by_annotations_and_by_the_pod_monitor(operator: bool) -> None:
    monitor = {"enabled": True, "labels": {"release": "prometheus"}}
    documents = render({"metrics": {"podMonitor": monitor}, "operator": {"enabled": operator}})
    found = find(documents, "PodMonitor", "purser")
    assert found["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = found["spec"]["podMetricsEndpoints"]
    templates = [d["spec"]["template"] for d in documents if d["kind"] in ("Deployment", "DaemonSet")]
    assert len(templates) == 2
    for template in templates:
        labels, annotations = template["metadata"]["labels"], template["metadata"]["annotations"]
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ports = [port for container in template["spec"]["containers"] for port in container.get("ports", [])]
        [number] = [port["containerPort"] for port in ports if port["name"] == endpoint["port"]]
        assert annotations["prometheus.io/scrape"] == "true"
        assert annotations["prometheus.io/port"] == str(number)


def test_what_is_cleaned_up_may_be_removed_and_nothing_else() -> None:
    documents = render({})
    role = find(documents, "Role", "purser-clean-up")
    removed = {
        (resource, name) for rule in role["rules"] for resource in rule["resources"] for name in rule["resourceNames"]
    }
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"delete"}
    assert removed == {
        ("secrets", GRANT_KEY_SECRET),
        ("secrets", TLS_SECRET),
        ("configmaps", GRANT_KEY_CONFIGMAP),
        ("configmaps", CA_CONFIGMAP),
        ("leases", KUBE_SCHEDULER_LEASE),
    }
    config = yaml.safe_load(find(documents, "ConfigMap", "purser-kube-scheduler")["data"]["config.yaml"])
    assert config["leaderElection"]["resourceName"] == KUBE_SCHEDULER_LEASE


def test_roles_have_no_wildcards() -> None:
    documents = [*render({}), *render({"operator": {"enabled": True}})]
    rules = [rule for d in documents if d["kind"] in ("ClusterRole", "Role") for rule in d["rules"]]
    assert rules
    assert not [rule for rule in rules if "*" in rule["verbs"] + rule["resources"] + rule["apiGroups"]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_flag_in_the_chart_is_one_that_the_command_knows(variant: str) -> None:
    given = [
        container["args"]
        for document in render(VARIANTS[variant])
        if document["kind"] in ("Deployment", "DaemonSet", "Job")
        for container in document["spec"]["template"]["spec"]["containers"]
        if "args" in container
    ]
    assert given
    for args in given:
        assert_parses(args)
