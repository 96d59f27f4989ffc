"""What manifests are rendered from in these tests: several policies, pools and runtimes."""

from typing import Any

from tests.unit.operator.sections import all_operands

from purser.operator.manifests import render
from purser.operator.model import Pool, RenderedManifest, RenderInputs, RuntimeKind
from purser.operator.policy import decode

NAMESPACE = "purser-system"
IMAGE = "registry.example/purser:0.1.0"
KINDS = (
    RuntimeKind("containerd"),
    RuntimeKind("containerd", "k3s"),
    RuntimeKind("containerd", "rke2"),
    RuntimeKind("containerd", "rke2", config_v2=True),
    RuntimeKind("containerd", "k0s"),
    RuntimeKind("containerd", "microk8s"),
    RuntimeKind("containerd", cdi=False),
    RuntimeKind("crio"),
    RuntimeKind("docker"),
    RuntimeKind("docker", "k3s"),
)
ALL_ENABLED = all_operands(enabled=True)
RELABELING = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node", "replacement": ""}
_EVERYTHING: dict[str, Any] = {
    "operator": {
        "labels": {"team": "gpu"},
        "annotations": {"note": "x"},
        "metrics": {"serviceMonitor": {"enabled": True, "relabelings": [RELABELING]}, "prometheusRules": True},
    },
    "daemonsets": {
        "labels": {"cost": "1"},
        "annotations": {"a": "b"},
        "rollingUpdate": {"maxUnavailable": "10%"},
        "podSecurityContext": {"runAsUser": 0, "supplementalGroups": [7], "seccompProfile": {"type": "Unconfined"}},
        "tolerations": [
            {"operator": "Exists"},
            {"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
    },
    "driver": {
        "imagePullPolicy": "Always",
        "imagePullSecrets": ["pull"],
        "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
        "args": ["--verbose"],
        "env": [{"name": "NODE_IP", "value": "mine"}, {"name": "EMPTY"}],
        "hostNetwork": True,
        "livenessProbe": {"periodSeconds": 7},
        "readinessProbe": {"failureThreshold": 2},
        "rdma": {"enabled": True, "useHostMofed": True},
        "manager": {"env": [{"name": "M", "value": "1"}]},
        "repoConfig": {"configMapName": "repos"},
        "certConfig": {"name": "certs"},
        "licensingConfig": {"secretName": "licence"},
        "virtualTopology": {"config": "topology"},
        "kernelModuleConfig": {"name": "modules"},
        "secretEnv": "secrets",
        "labels": {"part": "driver"},
        "annotations": {"part": "driver"},
        "tolerations": [{"key": "only-drivers", "operator": "Exists"}],
        "priorityClassName": "high",
        "podSecurityContext": {"fsGroup": 3, "seLinuxOptions": {"level": "s0"}},
        "profiles": [
            {"name": "old", "nodeSelector": {"a": "b"}, "version": "470.1", "kernelModuleType": "proprietary"}
        ],
    },
    "devicePlugin": {"flavor": "nvidia", "config": {"name": "plugin", "default": "any"}},
    "dcgmExporter": {
        "config": {"name": "metrics"},
        "serviceMonitor": {"enabled": True, "scrapeTimeout": "10s", "additionalLabels": {"release": "p"}},
        "annotations": {"a": "c"},
        "hpcJobMapping": {"enabled": True, "directory": "/jobs"},
        "service": {"type": "NodePort", "internalTrafficPolicy": "Local"},
        "hostPID": True,
        "enablePodLabels": True,
        "enablePodUID": True,
        "podLabelAllowlistRegex": ["^app$", "^team$"],
    },
    "migManager": {"config": {"name": "layouts", "default": "all-disabled"}},
    "gds": {"enabled": True, "args": ["-v"]},
    "gdrcopy": {"enabled": True},
}
EVERYTHING = {**_EVERYTHING, **{name: each | _EVERYTHING.get(name, {}) for name, each in ALL_ENABLED.items()}}
SPECS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything on": EVERYTHING,
    "everything off": all_operands(enabled=False) | {"discovery": {"enabled": False}},
    "nvidia's plugin": {"devicePlugin": {"flavor": "nvidia"}},
    "without CDI": {"devicePlugin": {"flavor": "nvidia"}, "cdi": {"enabled": False}},
    "the driver on the host": {"driver": {"enabled": False}, "toolkit": {"enabled": False}},
    "precompiled": {"driver": {"usePrecompiled": True, "version": "570"}},
    "another place": {
        "hostPaths": {"rootFS": "/host", "kubeletRootDir": "/data/kubelet", "driverInstallDir": "/opt/d"}
    },
    "pods replaced by hand": {"daemonsets": {"updateStrategy": "OnDelete"}},
}


def pool(name: str = "a", **fields: Any) -> Pool:
    """A pool of nodes with Ubuntu 22.04."""
    given = {"os_id": "ubuntu", "os_version": "22.04", "kernel": "5.15.0-1", "profile": "", "version": "", **fields}
    return Pool(name=name, **given)


POOLS = (pool(), pool("b", os_id="rhel", os_version="9", profile="old"), pool("c", os_id="sles", os_version="15.6"))


def wanted(spec: dict[str, Any] | None = None, **fields: Any) -> RenderInputs:
    """A policy with this spec, on one pool and one kind of runtime where nothing else is said."""
    policy = decode({"metadata": {"name": "gpus", "uid": "u-1"}, "spec": spec or {}})
    given: dict[str, Any] = {"pools": POOLS[:1], "runtimes": KINDS[:1], "service_monitors": True, **fields}
    given.setdefault("config_keys", dict.fromkeys(("modules", "repos", "certs", "m", "r", "c"), ("a.conf",)))
    return RenderInputs(policy=policy, namespace=NAMESPACE, purser_image=IMAGE, **given)


def rendered(spec: dict[str, Any] | None = None, **fields: Any) -> tuple[RenderedManifest, ...]:
    """Its manifests."""
    return render(wanted(spec, **fields))


def daemon_set(name: str, spec: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """One DaemonSet of them."""
    [found] = [
        r.object
        for r in rendered(spec, **fields)
        if (r.object["kind"], r.object["metadata"]["name"]) == ("DaemonSet", name)
    ]
    return dict(found)


def container(name: str, obj: dict[str, Any]) -> dict[str, Any]:
    """One container of a DaemonSet, init containers included."""
    pod = obj["spec"]["template"]["spec"]
    [found] = [each for each in [*pod.get("initContainers", []), *pod["containers"]] if each["name"] == name]
    return dict(found)


def variables(body: dict[str, Any]) -> dict[str, str]:
    """Its environment, as far as it has values."""
    return {each["name"]: each["value"] for each in body.get("env", []) if "value" in each}


def volumes(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The volumes of a DaemonSet's pods, by name."""
    return {each["name"]: each for each in obj["spec"]["template"]["spec"].get("volumes", [])}


def host_folders(body: dict[str, Any], obj: dict[str, Any]) -> dict[str, str]:
    """What a container has of the host: place in the container -> path on the host."""
    paths = {name: each["hostPath"]["path"] for name, each in volumes(obj).items() if "hostPath" in each}
    return {each["mountPath"]: paths[each["name"]] for each in body["volumeMounts"] if each["name"] in paths}
