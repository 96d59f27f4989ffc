"""Pods get GPUs by asking for them: neither by naming NVIDIA's devices, nor by widening the share that they hold."""

import json

import pytest
import yaml

from purser.adapters.pods import pod_spec
from purser.core.dialects import parse
from purser.core.model import Enforcement
from purser.core.names import GRANT_ANNOTATION
from purser.kube.codec import codec_of
from purser.kube.resources import PODS
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import DecisionReason, decode_review
from purser.scheduler.webhook.rules import PLACEMENT_RULES, first_objection
from purser.scheduler.webhook.validation import Validation
from tests.reported_files import reported
from tests.unit.scheduler.reviews import container, pod, review

GPU, MEM, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PLAIN, WHOLE, SHARE = None, {GPU: "1"}, {GPU: "1", MEM: "1024"}
FROM_A_SECRET = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def env(name, value="1"):
    return {"env": [{"name": name, "value": value} if isinstance(value, str) else {"name": name, **value}]}


def mount(path, **fields):
    return {"volumeMounts": [{"name": "v", "mountPath": path, **fields}]}


def root_of(process, path=""):
    """A path of the node, as a process sees it."""
    return f"/proc/{process}/root{path}"


def asking(limits, *, annotations=None, host_path=None, container_name="main", **fields):
    """A pod of one container that asks for this much."""
    spec = {key: fields.pop(key) for key in ("hostPID", "hostIPC") if key in fields}
    if host_path is not None:
        spec["volumes"] = [{"name": "v", "hostPath": {"path": host_path}}]
    return pod(container(container_name, limits=limits, **fields), annotations=annotations, **spec)


def decide(webhook, obj, **fields):
    return webhook.review(decode_review(json.dumps(review(obj, **fields)).encode()))


ENFORCED = (Enforcement.TIME_SLICING, Enforcement.HAMI_CORE)
ADVISORY = (Enforcement.TIME_SLICING, Enforcement.NONE)


def refused_by_both(obj, **rules):
    """The message of the webhooks, which agree."""
    devices = DeviceRules(**rules)
    first = decide(Mutation(devices=devices), obj)
    obj["spec"]["schedulerName"] = "purser-scheduler"
    second = decide(Validation(devices=devices), obj)
    assert (first.allowed, first.why) == (second.allowed, second.why)
    assert first.allowed or first.message == second.message
    return "" if first.allowed else first.message


def spec_of(obj):
    return pod_spec(codec_of(PODS).object(json.dumps(obj).encode()))


INJECTED = (
    "- path: /dev/nvidia0\n",
    "- path: /dev/dmabuf_import_helper\n- path: /dev/nvidiactl\n",
    "- source: /dev/nvidia-caps/nvidia-cap1\n  destination: /x\n  type: bind\n",
    "- {path: //dev/./nvidia-uvm}",
    '[{"path": "/dev/dri/renderD128"}]',
    r'[{"path": "/dev/nvid\u0069a0"}]',
    r'[{"path": "\/dev\/nvidia0"}]',
    "- path: !!binary L2Rldi9udmlkaWEw",
    "/dev/nvidia1:/dev/x:rwm,/dev/null",
    "/dev/char/195:0",
    "- source: /run/nvidia/driver/dev/nvidia0",
    "- source: /proc/1/cwd/dev/nvidia0",
    "- source: /dev\n  destination: /x",
    "- source: /\n  destination: /x",
    "- path: /dev/dri",
    "- path: !!str &a '/dev' # all",
    "/dev:/x:rwm",
    "- source: /var/run/nvidia",
    "nvidia.com/gpu=all",
    "vendor.example/nic=1,nvidia.com/gpu=0",
    "- k8s.gpu.nvidia.com/claim=a-b",
    '["management.nvidia.com/gpu=GPU-1"]',
)
"""By what injectors of devices and of mounts are told."""

NAMED = {
    "all by name": env("NVIDIA_VISIBLE_DEVICES", "all"),
    "a uuid": env("NVIDIA_VISIBLE_DEVICES", "GPU-1"),
    "an index": env("NVIDIA_VISIBLE_DEVICES", "0"),
    "hiding words in another case are devices to the toolkit": env("NVIDIA_VISIBLE_DEVICES", "VOID"),
    "a list": env("NVIDIA_VISIBLE_DEVICES", "none,all"),
    "unicode that looks like it": env("NVIDIA_VISIBLE_DEVICES", "v\u043eid"),
    "made of another variable": env("NVIDIA_VISIBLE_DEVICES", "$(WHICH)"),
    "from a secret": env("NVIDIA_VISIBLE_DEVICES", FROM_A_SECRET),
    "from a secret, with a value that hides": env("NVIDIA_VISIBLE_DEVICES", {"value": "void", **FROM_A_SECRET}),
    "rights over MIG": env("NVIDIA_MIG_CONFIG_DEVICES", "all"),
    "channels to other nodes": env("NVIDIA_IMEX_CHANNELS", "0"),
    "the switches between all GPUs": env("NVIDIA_NVSWITCH", "enabled"),
    "the second of two of one name": {
        "env": [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        ]
    },
    "a mount": mount("/var/run/nvidia-container-devices/all"),
    "a mount whose path only begins so": mount("/var/run/nvidia-container-devicesall"),
    "a mount below /run": mount("/run/nvidia-container-devices/all"),
    "a mount with a detour": mount("//var/./run/x/..///nvidia-container-devices//all/"),
    "a mount without a leading slash": mount("var/run/nvidia-container-devices/all"),
    "a block device": {"volumeDevices": [{"name": "v", "devicePath": "/var/run/nvidia-container-devices/0"}]},
    "a device file": {"host_path": "/dev/nvidia0"},
    "a device file with slashes": {"host_path": "//dev//nvidiactl/"},
    "the driver container's device files": {"host_path": "/run/nvidia/driver/dev/nvidia0"},
    "a device file by its number": {"host_path": "/dev/char/195:0"},
    "the device file of GPUs below WSL": {"host_path": "/dev/dxg"},
    "the same, whose end only kubelet knows": {"host_path": "/dev", **mount("/x", subPathExpr="dx$(REST)")},
    "the same in an annotation": {"annotations": {"devices.gke.io/container.main": "- path: /dev/dxg\n"}},
    "a device file through a process": {"host_path": root_of(1, "/dev/nvidia0")},
    "a device file through many processes": {"host_path": root_of(1) * 5000 + "/dev/nvidia0"},
    "a device file as a subPath": {"host_path": "/dev", **mount("/x", subPath="nvidia0")},
    "a device file as a subPath of the root": {"host_path": "/", **mount("/x", subPath="dev/./nvidia0")},
    "a subPath that only kubelet knows": {"host_path": "/dev", **mount("/x", subPathExpr="$(WHICH)")},
    "a subPath whose end only kubelet knows": {"host_path": "/", **mount("/x", subPathExpr="dev/nvi$(REST)")},
    "a subPath through a process that only kubelet knows": {
        "host_path": "/proc",
        **mount("/x", subPathExpr="$(WHICH)"),
    },
    "an annotation of CDI": {"annotations": {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}},
    "an annotation of CDI in capitals": {"annotations": {"CDI.k8s.io/gpu": "k8s.device-plugin.NVIDIA.com/gpu=0"}},
    "an annotation of NVIDIA's plugin for containerd": {
        "annotations": {"nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all"}
    },
    "an annotation of the device injector": {"annotations": {"devices.nri.io/container.main": "- path: /dev/nvidia0"}},
    "an annotation of CRI-O": {"annotations": {"io.kubernetes.cri-o.Devices": "/dev/nvidia0"}},
    **{
        f"an annotation of an unknown injector: {value}": {"annotations": {"x.example/main": value}}
        for value in INJECTED
    },
}


@pytest.mark.parametrize("limits", [PLAIN, SHARE, WHOLE], ids=["no GPUs", "a share", "a card"])
@pytest.mark.parametrize("said", NAMED.values(), ids=NAMED.keys())
def test_naming_nvidias_devices_is_refused_with_what_to_ask_for_instead(said, limits):
    said = refused_by_both(asking(limits, **said))
    assert "remove" in said
    assert len(said) < 4096


@pytest.mark.parametrize(
    ("limits", "advised"),
    [
        (PLAIN, "remove it and ask for GPUs with nvidia.com/gpu"),
        ({"huawei.com/Ascend910": "1"}, "remove it and ask for GPUs with nvidia.com/gpu"),
        (SHARE, "remove it, because the pod gets the GPUs that it asks for"),
        ({"aliyun.com/gpu-mem": "4"}, "remove it, because the pod gets the GPUs that it asks for"),
        ({GPU: "1", MEM: "much"}, "remove it, because the pod gets the GPUs that it asks for"),
    ],
    ids=["no GPUs", "another vendor's", "a share", "gpushare", "unreadable"],
)
def test_only_pods_without_gpus_are_told_how_to_ask_for_them(limits, advised):
    named = asking(limits, annotations={"cdi.k8s.io/main": "nvidia.com/gpu=all"})
    assert advised in decide(Validation(), named).message


@pytest.mark.parametrize("said", NAMED.values(), ids=NAMED.keys())
def test_another_scheduler_or_a_label_of_its_own_lets_no_pod_name_devices(said):
    other = asking({MEM: "1"}, **said)
    other["spec"]["schedulerName"] = "volcano"
    for webhook in (Mutation(), Validation()):
        assert not decide(webhook, other).allowed
    labelled = asking(PLAIN, **said)
    labelled["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert not decide(Validation(), labelled).allowed


@pytest.mark.parametrize("label", ["hami.io/webhook", "purser.dev/webhook"])
def test_a_label_of_its_own_lets_no_pod_bring_a_grant(label):
    labelled = asking(SHARE, annotations={GRANT_ANNOTATION: "x"})
    labelled["metadata"]["labels"] = {label: "ignore"}
    assert decide(Validation(), labelled).why is DecisionReason.FORGED_GRANT


@pytest.mark.parametrize("said", NAMED.values(), ids=NAMED.keys())
def test_namespaces_that_the_administrator_names_may_name_devices(said):
    obj = asking(PLAIN, **said)
    rules = DeviceRules(("monitoring",))
    for webhook in (Mutation(devices=rules), Validation(devices=rules)):
        assert decide(webhook, obj, namespace="monitoring").allowed
        assert not decide(webhook, obj, namespace="team").allowed


WIDENED_SHARES = {
    **{
        name: env(name)
        for name in (
            "CUDA_DEVICE_MEMORY_LIMIT",
            "CUDA_DEVICE_MEMORY_LIMIT_0",
            "CUDA_DEVICE_MEMORY_LIMIT_15",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE",
            "CUDA_DEVICE_SM_LIMIT",
            "CUDA_DEVICE_SM_LIMIT_0",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            "CUDA_MPS_PIPE_DIRECTORY",
            "CUDA_OVERSUBSCRIBE",
            "CUDA_REDIRECT",
            "LD_AUDIT",
            "LD_PRELOAD",
            "NVIDIA_GDRCOPY",
            "NVIDIA_GDS",
            "NVIDIA_MOFED",
            "PURSER_GPU_ENFORCEMENT",
            "PURSER_GPU_ANYTHING",
        )
    },
    "a limit from a secret": env("CUDA_DEVICE_SM_LIMIT", FROM_A_SECRET),
    "limits by a prefix": {"envFrom": [{"prefix": "CUDA_DEVICE_MEMORY_LIMIT_", "configMapRef": {"name": "c"}}]},
    "the preload list": mount("/etc/ld.so.preload"),
    "the preload list as a subPath": mount("/etc/ld.so.preload", subPath="empty"),
    "the preload list with a detour": mount("/etc/x/../ld.so.preload"),
    "the preload list with a slash": mount("/etc//ld.so.preload/"),
    "what holds the preload list": mount("/etc"),
    "the library": mount("/usr/local/vgpu/libvgpu.so"),
    "the library's folder": mount("/usr/local/vgpu/"),
    "what holds the library's folder": mount("/usr/local"),
    "HAMi-core's own file of variables": mount("/overrideEnv"),
    "HAMi-core's locks": mount("/tmp/vgpulock"),
    "another MPS daemon's pipes": mount("/tmp/nvidia-mps"),
    "other pods' processes": {"hostPID": True},
    "mounts undone": {"securityContext": {"capabilities": {"add": ["sys_admin"]}}},
    "all capabilities": {"securityContext": {"capabilities": {"add": ["NET_ADMIN", "all"]}}},
    "a capability in the runtime's words": {"securityContext": {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}},
}

WIDENED_GPUS = {
    "a mount over a device file": mount("/dev/nvidia1"),
    "a block device over a device file": {"volumeDevices": [{"name": "v", "devicePath": "/dev/nvidiactl"}]},
    "a mount over the driver's folders": mount("/run/nvidia/driver"),
    "a mount over them by /var": mount("/var/run/nvidia/mps"),
    "a mount that depends on links": mount("/data/../dev/nvidia0"),
    "the node's devices": {"host_path": "/dev"},
    "the node's devices through a process": {"host_path": root_of("self", "/dev/")},
    "the node": {"host_path": "/"},
    "the node through a process": {"host_path": root_of(1)},
    "the node's processes": {"host_path": "/proc"},
    "an open file of a process of the node": {"host_path": "/proc/1/fd/3"},
    "a process of the node": {"host_path": "/proc/self"},
    "a thread of the node": {"host_path": "/proc/1/task/7"},
    "the driver's own folder": {"host_path": "/proc/driver/nvidia"},
    "the folder of drivers": {"host_path": "/proc/driver"},
    "the node's device files by number": {"host_path": "/dev/char"},
    "the device plugins' sockets": {"host_path": "/var/lib/kubelet/device-plugins"},
    "kubelet's folder": {"host_path": "/var/lib/kubelet/"},
    "the agent's books": {"host_path": "/var/lib/purser"},
    "its neighbours' limits": {"host_path": "/usr/local/vgpu/containers"},
    "the driver's folders": {"host_path": "/var/run/nvidia"},
    "the specifications of CDI": {"host_path": "/etc/cdi"},
    "the MPS daemon": {"host_path": "/tmp/nvidia-mps"},
    "another vendor's devices beside": {"annotations": {"cdi.k8s.io/x": "vendor.example/gpu=all"}},
    "a lie about what holds it": env("PURSER_GPU_ENFORCEMENT", "whole-device"),
}


@pytest.mark.parametrize(
    "said", [*WIDENED_SHARES.values(), *WIDENED_GPUS.values()], ids=[*WIDENED_SHARES, *WIDENED_GPUS]
)
@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_a_share_is_not_widened(said, place):
    obj = asking(SHARE, container_name="c", **said)
    if place == "initContainers":
        obj["spec"]["initContainers"] = obj["spec"]["containers"]
        obj["spec"]["containers"] = [container("main", limits=SHARE)]
    assert refused_by_both(obj)


@pytest.mark.parametrize("said", WIDENED_GPUS.values(), ids=WIDENED_GPUS)
def test_nor_are_whole_gpus(said):
    assert refused_by_both(asking(WHOLE, **said))


@pytest.mark.parametrize("said", [*NAMED.values(), *WIDENED_GPUS.values()], ids=[*NAMED, *WIDENED_GPUS])
def test_a_pod_that_came_past_the_webhook_is_not_placed(said):
    objection = first_objection(PodReading(spec_of(asking(SHARE, **said))), PLACEMENT_RULES)
    assert objection is not None
    assert not objection.allowed


@pytest.mark.parametrize("name", ["NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"])
def test_whole_gpus_may_have_what_is_beside_them(name):
    assert refused_by_both(asking(WHOLE, **env(name, "enabled"))) == ""


HARMLESS = (
    "- path: /dev/dmabuf_import_helper\n",
    "- path: /dev/dma_heap/system\n",
    "- path: /dev/infiniband/uverbs0\n",
    "/",
    "/metrics",
    "http://x.example/dev",
    "nvidia.com/gpu.product=NVIDIA-A100",
    "run with 1/2 of the device / GPU, see /developers/nvidia",
    "/data/dev/nvidia0",
    '{"path": "/"}',
)
HARMLESS_PATHS = (
    "/processed",
    "/run/purser-data",
    "/run/nvidia-logs",
    "/usr/local/vgpu-models",
    "/tmp/nvidia-mps-results",
    "/var/lib/purser2",
    "/etc/cdi.d",
    "/dev/charts",
    "/dev/dxgi",
)
"""Names that begin like those of others."""
HARMLESS_PROC = ("/proc/sys", "/proc/sys/net/ipv4", "/proc/meminfo", "/proc/net/dev", "/proc/selfish", "/proc/12a")

HONEST = {
    "hiding all devices": env("NVIDIA_VISIBLE_DEVICES", "void"),
    "hiding all devices, spaced": env("NVIDIA_VISIBLE_DEVICES", " none "),
    "an empty list": env("NVIDIA_VISIBLE_DEVICES", ""),
    "which of the driver's libraries": env("NVIDIA_DRIVER_CAPABILITIES", "all"),
    "which of its own devices": env("CUDA_VISIBLE_DEVICES", "0"),
    "HAMi's way out": env("CUDA_DISABLE_CONTROL", "true"),
    "HAMi's priority": env("CUDA_TASK_PRIORITY", "0"),
    "HAMi's core policy": env("GPU_CORE_UTILIZATION_POLICY", "force"),
    "HAMi's log": env("LIBCUDA_LOG_LEVEL", "4"),
    "the name in another case is another variable": env("ld_preload", "x.so"),
    "a ConfigMap": {"envFrom": [{"configMapRef": {"name": "c"}}]},
    "a volume at /tmp": mount("/tmp"),
    "a volume at /dev/shm": mount("/dev/shm"),
    "a volume beside the library": mount("/usr/local/lib"),
    "a volume in /etc": mount("/etc/app"),
    "a folder of the node": {"host_path": "/data"},
    "a path that begins alike": {"host_path": "/dev/infiniband"},
    "shared memory of the node": {"hostIPC": True},
    "other annotations": {"annotations": {"cdi.example/gpu": "vendor.example/gpu=all", "note": "nvidia"}},
    **{f"an annotation: {value}": {"annotations": {"x.example/main": value}} for value in HARMLESS},
    "what kubectl applied": {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"hostPath":{"path":"/dev/nvidia0"}}'}
    },
    "dma-buf by an injector that Purser knows": {
        "annotations": {"devices.nri.io/container.main": "- path: /dev/dmabuf_import_helper\n- path: /dev/udmabuf\n"}
    },
    **{f"a folder of the node: {path}": {"host_path": path} for path in (*HARMLESS_PATHS, *HARMLESS_PROC)},
    **{f"a mount at {path}": mount(path) for path in HARMLESS_PATHS},
    "a capability": {"securityContext": {"capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]}}},
}


@pytest.mark.parametrize("limits", [PLAIN, SHARE, WHOLE], ids=["no GPUs", "a share", "a card"])
@pytest.mark.parametrize("said", HONEST.values(), ids=HONEST.keys())
def test_what_honest_pods_say_goes_on_working(said, limits):
    assert refused_by_both(asking(limits, **said)) == ""


OPTING_OUT = env("CUDA_DISABLE_CONTROL", "true")


@pytest.mark.parametrize(
    ("limits", "spec", "of_pod", "of_namespace", "says"),
    [
        (SHARE, OPTING_OUT, "required", "", "but the pod's annotation purser.dev/enforcement is required"),
        (SHARE, OPTING_OUT, "", "required", "but its namespace's annotation purser.dev/enforcement is required"),
        (SHARE, OPTING_OUT, "none", "required", 'annotation purser.dev/enforcement "none" is not valid'),
        (SHARE, OPTING_OUT, "", "none", ': annotation purser.dev/enforcement "none" is not valid'),
        (SHARE, OPTING_OUT, "", "", ""),
        (SHARE, {}, "required", "required", ""),
        (WHOLE, OPTING_OUT, "required", "required", ""),
        (PLAIN, OPTING_OUT, "none", "required", ""),
    ],
)
def test_a_pod_that_requires_enforcement_does_not_disable_it(limits, spec, of_pod, of_namespace, says):
    asked = asking(limits, annotations={"purser.dev/enforcement": of_pod} if of_pod else {}, **spec)
    said = refused_by_both(asked, enforcement_of_namespace=lambda name: of_namespace)
    assert said == "" if not says else says in said
    objection = first_objection(PodReading(spec_of(asked)), PLACEMENT_RULES)
    assert (objection is not None) == (bool(says) and bool(of_pod))


def test_a_pod_that_requires_what_no_node_enforces_is_warned():
    asked = asking(SHARE, annotations={"purser.dev/enforcement": "required"})
    (said,) = decide(Mutation(devices=DeviceRules(enforcements=lambda: ADVISORY)), asked).warnings
    assert said.endswith(
        "none, time-slicing); the pod requires enforcement, so it stays Pending until a node enforces them"
    )
    assert len(said) <= 256


def test_pods_that_cannot_be_mps_clients_are_warned_where_there_is_mps():
    asked = asking(SHARE, **mount("/dev/shm"))
    for word, told in (("mps", 1), ("hami-core", 0)):
        rules = DeviceRules(enforcements=lambda word=word: (Enforcement(word),))
        said = decide(Mutation(devices=rules), asked).warnings
        assert ["mounts a volume at /dev/shm" in each and len(each) <= 256 for each in said] == [True] * told


def test_pods_without_gpus_are_not_asked_about_what_limits_gpus():
    for said in (*WIDENED_SHARES.values(), env("PURSER_GPU_ENFORCEMENT"), {"host_path": "/dev"}, {"host_path": "/"}):
        assert refused_by_both(asking(PLAIN, **said)) == ""


def test_a_pod_with_whole_gpus_may_run_its_own_mps_and_preload_what_it_likes():
    for said in (env("CUDA_MPS_PIPE_DIRECTORY"), env("LD_PRELOAD"), mount("/tmp/nvidia-mps"), mount("/etc")):
        assert refused_by_both(asking(WHOLE, **said)) == ""


def test_a_container_that_says_it_is_not_limited_may_load_what_it_likes():
    both = {"env": [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}, {"name": "LD_PRELOAD", "value": "x.so"}]}
    assert refused_by_both(asking(SHARE, **both)) == ""


def test_preloading_is_refused_where_some_node_enforces_or_may():
    preloading = asking(SHARE, **env("LD_PRELOAD", "libtcmalloc.so"))
    assert refused_by_both(preloading, enforcements=lambda: ADVISORY) == ""
    for there in (ENFORCED, ()):
        said = refused_by_both(preloading, enforcements=lambda known=there: known)
        assert said.startswith(
            'container "main" asks for GPUs and sets LD_PRELOAD, which loads libraries before HAMi-core'
        )
        assert "CUDA_DISABLE_CONTROL=true" in said


@pytest.mark.parametrize("limits", [PLAIN, SHARE], ids=["no GPUs", "a share"])
@pytest.mark.parametrize(
    "said",
    [
        env("NVIDIA_VISIBLE_DEVICES", "all"),
        env("NVIDIA_VISIBLE_DEVICES", FROM_A_SECRET),
        mount("/var/run/nvidia-container-devices/all"),
    ],
    ids=["variable", "secret", "mount"],
)
def test_a_debugging_container_names_no_devices(said, limits):
    before = asking(limits)
    after = asking(limits)
    after["spec"]["ephemeralContainers"] = [container("debug", **said)]
    for subresource in ("ephemeralcontainers", ""):
        decision = decide(Validation(), after, old=before, operation="UPDATE", subresource=subresource)
        assert not decision.allowed
        assert 'container "debug"' in decision.message
    after["spec"]["ephemeralContainers"] = [container("debug")]
    assert decide(Validation(), after, old=before, operation="UPDATE", subresource="ephemeralcontainers").allowed


def test_an_annotation_that_asks_for_devices_is_not_added_later():
    before, after = asking(SHARE), asking(SHARE, annotations={"cdi.k8s.io/gpu": "nvidia.com/gpu=all"})
    assert not decide(Validation(), after, old=before, operation="UPDATE").allowed


def test_a_pod_that_was_there_before_the_rule_can_still_be_changed():
    before, after = (asking(SHARE, **env("NVIDIA_VISIBLE_DEVICES", "all")) for _ in range(2))
    after["metadata"]["labels"] = {"new": "label"}
    assert decide(Validation(), after, old=before, operation="UPDATE").allowed
    assert decide(Validation(), before, old=after, operation="UPDATE").allowed


def test_the_message_of_ten_thousand_widenings_is_short_and_names_the_rest():
    many = [{"name": f"PURSER_GPU_{place}{'x' * 500}", "value": ""} for place in range(10_000)]
    said = refused_by_both(asking(SHARE, env=many))
    assert said.endswith("and 9995 more")
    assert len(said) < 2048


def test_a_share_is_a_share_in_every_vocabulary():
    for limits in (
        {MEM: "1"},
        {GPU: "1", CORES: "30"},
        {"volcano.sh/gpu-memory": "1"},
        {"nvidia.com/gpumem-percentage": "5"},
    ):
        assert refused_by_both(asking(limits, **env("LD_PRELOAD")))
        assert parse(spec_of(asking(limits))) is not None


@pytest.mark.parametrize(
    ("limits", "spec", "there", "says"),
    [
        (SHARE, {}, ENFORCED, None),
        (SHARE, {}, (), None),
        (WHOLE, {}, ADVISORY, None),
        (SHARE, {}, ADVISORY, "advisory: no node enforces them (enforcement: none, time-slicing)"),
        (
            SHARE,
            env("CUDA_DISABLE_CONTROL", "true"),
            ENFORCED,
            "sets CUDA_DISABLE_CONTROL, so its GPU share is not enforced",
        ),
        (SHARE, {"envFrom": [{"configMapRef": {"name": "c"}}]}, ENFORCED, "may lift the share's limits"),
        (SHARE, env("GPU_CORE_UTILIZATION_POLICY", "disable"), ENFORCED, "switches off its compute limit"),
        (WHOLE, {"envFrom": [{"configMapRef": {"name": "c"}}]}, ENFORCED, None),
    ],
)
def test_a_share_is_warned_about_where_its_limits_are_advisory(limits, spec, there, says):
    decision = decide(Mutation(devices=DeviceRules(enforcements=lambda: there)), asking(limits, **spec))
    assert decision.allowed
    assert all(len(warning) <= 256 for warning in decision.warnings)  # the API server cuts longer ones
    assert [says in warning for warning in decision.warnings] == ([True] if says else [])


@pytest.mark.parametrize(
    ("trusted", "named"),
    [(("kube-system", "monitoring"), "kube-system, monitoring"), ((), "webhook.deviceNamespaces) may name")],
)
@pytest.mark.parametrize(
    "obj",
    [
        asking(WHOLE, host_path="/proc"),
        asking(PLAIN, host_path="/dev/nvidia0"),
        asking(PLAIN, annotations={"x.example/main": "- path: /dev/nvidia0"}),
    ],
    ids=["the node's processes", "a device file", "an annotation"],
)
def test_a_refusal_names_the_namespaces_that_are_trusted(obj, trusted, named):
    message = refused_by_both(obj, trusted=trusted)
    assert "trusted namespaces" in message
    assert named in message


@pytest.mark.parametrize(
    ("name", "key"), [("gke-annotation.yaml", "devices.gke.io"), ("sibling-mounts.nri.io.yaml", "mounts.nri.io")]
)
def test_reported_annotations_are_refused(name, key):
    read = yaml.safe_load(reported(name).read_text())
    pods = [obj for step in read["steps"] for obj in step["refused"]["apply"]]
    assert pods
    for obj in pods:
        assert key in refused_by_both(obj)


def test_the_reported_folder_of_the_node_is_no_device():
    assert refused_by_both(yaml.safe_load(reported("proc-sys.yaml").read_text())) == ""
