"""What NVIDIA's images need of the manifests that run them: users, folders, and the files that they await and write.

The images cannot run without a GPU. Their protocols of waiting and writing can: here they are done by stand-ins, in the
rendered containers' view of files and as their users.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.tiers import some
from tests.unit.operator.sections import all_operands

from purser.agent.inventory.driver_roots import driver_roots
from purser.operator.manifests.rbac import ACCOUNTS
from purser.operator.model import RuntimeKind
from purser.operator.names import OPERAND_LABEL

from .node_files import NOBODYS, NodeFiles, Seat
from .wanteds import container, daemon_set, host_folders, pool, rendered, variables, volumes

pytestmark = pytest.mark.processes

Raw = dict[str, Any]
SYSTEMS = {
    "ubuntu22.04": pool("ubuntu22"),
    "ubuntu24.04": pool("ubuntu24", os_version="24.04"),
    "rhel8": pool("rhel8", os_id="rhel", os_version="8"),
    "rhel9": pool("rhel9", os_id="rhel", os_version="9"),
    "rhel9 with CRI-O": pool("rhel9-crio", os_id="rhel", os_version="9", runtime="crio"),
    "sles15.6": pool("sles", os_id="sles", os_version="15.6"),
}
KINDS = (RuntimeKind("containerd"), RuntimeKind("crio"), RuntimeKind("containerd", "k3s"))
KEYS = {
    "modules": ("nvidia-uvm.conf", "nvidia.conf"),
    "repos": ("private.repo",),
    "certs": ("ours.crt", "theirs.crt"),
}
CONFIGURED: Raw = {
    "kernelModuleConfig": {"name": "modules"},
    "repoConfig": {"configMapName": "repos"},
    "certConfig": {"name": "certs"},
    "rdma": {"enabled": True},
}
SPECS: dict[str, Raw] = {
    "driver in containers": {
        **all_operands(enabled=True),
        "driver": CONFIGURED,
        "gds": {"enabled": True},
        "gdrcopy": {"enabled": True},
    },
    "driver on the nodes": {"driver": {"enabled": False}, "nodeStatusExporter": {"enabled": True}},
    "nvidia's plugin": {"devicePlugin": {"flavor": "nvidia", "config": {"name": "plugin", "default": "any"}}},
    "a driver elsewhere": {
        "driver": {"enabled": False},
        "hostPaths": {"driverInstallDir": "/home/kubernetes/bin/nvidia"},
        "devicePlugin": {"flavor": "nvidia"},
    },
    "no toolkit": {"toolkit": {"enabled": False}, "devicePlugin": {"flavor": "nvidia"}},
}
Sets = dict[str, dict[str, Raw]]


@pytest.fixture(scope="module")
def sets() -> Sets:
    """DaemonSets by policy and name: each policy rendered once, for every system and runtime."""
    every = {"pools": tuple(SYSTEMS.values()), "runtimes": KINDS, "config_keys": KEYS}
    return {
        policy: {
            each.object["metadata"]["name"]: dict(each.object)
            for each in rendered(spec, **every)
            if each.object["kind"] == "DaemonSet"
        }
        for policy, spec in SPECS.items()
    }


@pytest.fixture
def node() -> Iterator[NodeFiles]:
    """Where other users than the one who runs the tests may look, too."""
    with TemporaryDirectory() as folder:
        yield NodeFiles(Path(folder))


def containers(obj: Raw) -> list[Raw]:
    pod = obj["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def every(sets: Sets) -> Iterator[tuple[str, Raw, Raw]]:
    for policy, by_name in sets.items():
        for name, obj in by_name.items():
            for body in containers(obj):
                yield f"{policy}: {name}: {body['name']}", body, obj


# --- users


def test_whatever_works_on_the_node_is_root_at_the_level_that_all_may_read(sets: Sets) -> None:
    """The image gpu-operator has a user of its own, to whom the kernel gives none of its capabilities."""
    seen = set()
    for where, body, _ in every(sets):
        context = body["securityContext"]
        if context.get("privileged"):
            assert (context["runAsUser"], context["seLinuxOptions"]) == (0, {"level": "s0"}), where
        if "/gpu-operator:" in body["image"]:
            seen.add(body["name"])
            assert context == {"privileged": True, "runAsUser": 0, "seLinuxOptions": {"level": "s0"}}, where
    checks = {f"{each}-validation" for each in ("driver", "toolkit", "cuda", "plugin")}
    assert seen == {*checks, "await-driver", "nvidia-operator-validator", "nvidia-node-status-exporter"}


# --- folders

IMAGE_FILES = (
    "/drivers/NVIDIA-Linux-x86_64-595.91.07.run",
    "/etc/apt/sources.list.d/ubuntu.sources",
    "/etc/yum.repos.d/ubi.repo",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/zypp/repos.d/sles.repo",
)
"""Of the driver's images, where people's files come."""
FOLDERS = {
    "ubuntu": ("/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
    "rhel": ("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
    "sles": ("/etc/zypp/repos.d", "/etc/pki/trust/anchors"),
}


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_each_key_of_people_s_files_stands_beside_those_of_the_image(sets: Sets, system: str) -> None:
    obj = sets["driver in containers"][SYSTEMS[system].daemon_set]
    body = container("nvidia-driver-ctr", obj)
    repositories, certificates = FOLDERS[SYSTEMS[system].os_id]
    config = {name: each["configMap"]["name"] for name, each in volumes(obj).items() if "configMap" in each}
    given = {
        mount["mountPath"]: (config[mount["name"]], mount["subPath"], mount["readOnly"])
        for mount in body["volumeMounts"]
        if mount["name"] in config
    }
    assert given == {
        f"{folder}/{key}": (name, key, True)
        for name, folder in (("modules", "/drivers"), ("repos", repositories), ("certs", certificates))
        for key in KEYS[name]
    }
    for path in IMAGE_FILES:
        assert not [m for m in body["volumeMounts"] if path.startswith(f"{m['mountPath']}/") or m["mountPath"] == path]
    peermem = container("nvidia-peermem-ctr", obj)
    node_assignments = {each["mountPath"] for each in peermem["volumeMounts"]}
    assert {f"/drivers/{key}" for key in KEYS["modules"]} <= node_assignments and "/drivers" not in node_assignments


@pytest.mark.parametrize("lacking", list(KEYS))
def test_a_driver_is_not_made_without_a_config_map_that_it_is_to_have(lacking: str) -> None:
    keys = {name: each for name, each in KEYS.items() if name != lacking}
    made = [r.object["metadata"]["name"] for r in rendered({"driver": CONFIGURED}, config_keys=keys)]
    assert "purser-driver-a" not in made and "purser-container-toolkit-containerd" in made


def test_another_file_of_module_parameters_makes_another_driver_and_another_repository_does_not() -> None:
    def configuration(keys: dict[str, tuple[str, ...]]) -> str:
        obj = daemon_set("purser-driver-a", {"driver": CONFIGURED}, config_keys=keys)
        return variables(container("nvidia-driver-ctr", obj))["DRIVER_CONFIG_DIGEST"]

    assert configuration({**KEYS, "modules": ("nvidia.conf",)}) != configuration(KEYS)
    assert configuration({**KEYS, "repos": ("other.repo",)}) == configuration(KEYS)


def test_the_hosts_subscription_is_mounted_but_where_red_hats_cri_o_does_so() -> None:
    def secrets(system: str) -> set[str]:
        obj = daemon_set(SYSTEMS[system].daemon_set, pools=(SYSTEMS[system],))
        folders = host_folders(container("nvidia-driver-ctr", obj), obj)
        return {at for at in folders if at.startswith("/run/secrets/")}

    expected = {f"/run/secrets/{each}" for each in ("etc-pki-entitlement", "redhat.repo", "rhsm")}
    assert secrets("rhel8") == secrets("rhel9") == expected
    assert secrets("rhel9 with CRI-O") == secrets("ubuntu24.04") == set()


# --- the driver's container


def driver(node: NodeFiles, sets: Sets, system: str, name: str = "nvidia-driver-ctr") -> Seat:
    return node.seat(name, sets["driver in containers"][SYSTEMS[system].daemon_set])


def load_modules(seat: Seat) -> None:
    """The kernel's, which every container sees."""
    refcnt = seat.at("/sys/module/nvidia/refcnt")
    refcnt.parent.mkdir(parents=True, exist_ok=True)
    refcnt.write_text("4\n")


READY = "/run/nvidia/validations/.driver-ctr-ready"
DAEMONS = "/run/nvidia/validations/.driver-daemons-status"
TELLS_NOT_READY = f"mkdir -p /run/nvidia/validations; echo NotReady > {DAEMONS}"
"""What the image does first, from v26.7.0 on."""
TELLS_READY = f"echo Ready > {DAEMONS}"
"""What it does once fabric manager and persistenced run."""
SMI = {"nvidia-smi": "exit 0"}


@pytest.mark.parametrize("system", some(tuple(SYSTEMS), 4))
def test_the_driver_is_ready_once_its_daemons_are_and_says_so_to_those_who_wait(
    node: NodeFiles, sets: Sets, system: str
) -> None:
    seat, peermem = driver(node, sets, system), driver(node, sets, system, "nvidia-peermem-ctr")
    probe = seat.hook("startupProbe")
    assert seat.run(probe, SMI).returncode == 1, "no module is loaded"
    assert seat.start({"nvidia-driver": f'[ "$1" = init ] && {TELLS_NOT_READY}'}).returncode == 0
    load_modules(seat)
    for programs, why in ((SMI, "NotReady"), ({"nvidia-smi": "exit 9"}, "nvidia-smi failed")):
        failed = seat.run(probe, programs)
        assert (failed.returncode, why in failed.stdout) == (1, True), failed
        assert node.read(READY) is None
        assert seat.run(["sh", "-c", TELLS_READY]).returncode == 0
    waits = ["sh", "-c", f"[ -f {READY} ]"]
    assert peermem.run(waits).returncode == 1
    assert seat.run(probe, SMI).returncode == 0
    assert peermem.run(waits).returncode == 0
    flags = {"GDRCOPY_ENABLED: true", "GDS_ENABLED: true", "GPU_DIRECT_RDMA_ENABLED: true"}
    assert set((node.read(READY) or "").splitlines()) == flags
    node.write("/run/nvidia/validations/driver-ready", "NVIDIA_DRIVER_ROOT=/run/nvidia/driver\n")
    assert seat.run(seat.hook("lifecycle", "preStop")).returncode == 0
    assert [node.read(each) for each in (READY, DAEMONS, "/run/nvidia/validations/driver-ready")] == [None] * 3


def test_an_image_that_says_nothing_of_its_daemons_is_ready_with_nvidia_smi(node: NodeFiles, sets: Sets) -> None:
    seat = driver(node, sets, "rhel8")
    load_modules(seat)
    assert seat.run(seat.hook("startupProbe"), SMI).returncode == 0
    assert node.read(READY) is not None


def test_what_a_killed_driver_left_behind_is_not_taken_for_the_next_ones_word(node: NodeFiles, sets: Sets) -> None:
    """An image that fails on its fabric manager, and after it an older one that writes nothing."""
    seat = driver(node, sets, "ubuntu24.04")
    for left, then in ((DAEMONS, "NotReady"), (READY, "GDS_ENABLED: true")):
        node.write(left, f"{then}\n")
    assert seat.start({"nvidia-driver": 'echo "$@"'}).stdout == "init\n"
    assert (node.read(DAEMONS), node.read(READY)) == (None, None)


# --- where the driver is, node by node

VALIDATOR = """
host='\\057host' root='\\057driver-root'  # paths of others' containers, not of this one
[ "$COMPONENT" = driver ] || exit 3
rm -f /run/nvidia/validations/driver-ready || exit 4
mkdir -p /run/nvidia/validations && : > /host-dev-char/writable || exit 5
tell() {
  for name in IS_HOST_DRIVER NVIDIA_DRIVER_ROOT DRIVER_ROOT_CTR_PATH NVIDIA_DEV_ROOT DEV_ROOT_CTR_PATH; do
    printf '%s=%b\\n' "$name" "$1"; shift
  done > /run/nvidia/validations/driver-ready
}
until [ -e /host/usr/bin/nvidia-smi ] || [ -e @INSTALL@/bin/nvidia-smi ] || [ -e @INSTALL@/usr/bin/nvidia-smi ]; do
  sleep 5
done
if [ -e /host/usr/bin/nvidia-smi ]; then tell true "$HOST_ROOT" "$host" "$HOST_ROOT" "$host"
elif [ -d @INSTALL@/dev ]; then tell false "$DRIVER_INSTALL_DIR" "$root" "$DRIVER_INSTALL_DIR" "$root"
else tell false "$DRIVER_INSTALL_DIR" "$root" "$HOST_ROOT" "$host"
fi
"""
"""As the validator looks for a driver: first on the host, then where drivers are installed."""
MIXED = "driver in containers"


def put_driver(node: NodeFiles, where: str) -> None:
    base = {"host": "", "container": "/run/nvidia/driver", "elsewhere": "/home/kubernetes/bin/nvidia"}[where]
    folders = ("/bin", "/lib64") if where == "elsewhere" else ("/usr/bin", "/usr/lib64")
    node.write(f"{base}{folders[0]}/nvidia-smi")
    node.write(f"{base}{folders[1]}/libnvidia-ml.so.1")
    if where != "elsewhere":
        node.write(f"{base}/dev/nvidiactl")


def validator(policy: str) -> dict[str, str]:
    install = SPECS[policy].get("hostPaths", {}).get("driverInstallDir", "/run/nvidia/driver")
    return {"nvidia-validator": VALIDATOR.replace("@INSTALL@", install), "sleep": "exit 0"}


NODES = [
    pytest.param(MIXED, "host", "/", "/", id="preinstalled, in a cluster with containers"),
    pytest.param(MIXED, "container", "/run/nvidia/driver", "/run/nvidia/driver", id="in a container"),
    pytest.param("driver on the nodes", "host", "/", "/", id="preinstalled"),
    pytest.param("a driver elsewhere", "elsewhere", "/home/kubernetes/bin/nvidia", "/", id="preinstalled elsewhere"),
]


@pytest.mark.parametrize(("policy", "where", "root", "dev_root"), NODES)
@pytest.mark.parametrize("kind", [kind.label for kind in KINDS])
def test_every_operand_gets_the_driver_of_its_own_node(
    node: NodeFiles, sets: Sets, policy: str, where: str, root: str, dev_root: str, kind: str
) -> None:
    obj = sets[policy][f"purser-container-toolkit-{kind}"]
    put_driver(node, where)
    check = node.seat("driver-validation", obj, NOBODYS)
    done = check.start(validator(policy))
    assert done.returncode == 0, done.stderr
    main = node.seat("nvidia-container-toolkit-ctr", obj)
    told = main.start({"nvidia-toolkit": "env", "sleep": "exit 0"})
    env = dict(line.partition("=")[::2] for line in told.stdout.splitlines())
    assert (env["NVIDIA_DRIVER_ROOT"], env["NVIDIA_DEV_ROOT"]) == (root, dev_root)
    for path, host in (("DRIVER_ROOT_CTR_PATH", root), ("DEV_ROOT_CTR_PATH", dev_root)):
        assert main.at(env[path]).resolve() == (node.host / host.lstrip("/")).resolve()
    agents = sets[policy].get(f"purser-device-plugin-{kind}")
    worker = sets[policy]["purser-mig-manager"]
    for name, found in (("agent", agents), ("mig-worker", worker)):
        if found is not None and name in {each["name"] for each in containers(found)}:
            assert looked_in(node, name, found) == ((node.host / root.lstrip("/")).resolve(),)


def looked_in(node: NodeFiles, name: str, obj: Raw) -> tuple[Path, ...]:
    """Where Purser's own look for the driver, by their arguments."""
    seat = node.seat(name, obj)
    options = [each.partition("=")[::2] for each in container(name, obj)["args"]]
    [file] = [seat.at(value) for option, value in options if option == "--driver-root-file"]
    given = [seat.at(value) for option, value in options if option == "--driver-root"]
    return tuple(each.resolve() for each in driver_roots(file, given, seat.at("/host")))


def test_a_validator_that_is_not_root_writes_no_status(node: NodeFiles, sets: Sets) -> None:
    """That these tests would see it."""
    obj = sets[MIXED]["purser-container-toolkit-containerd"]
    body = container("driver-validation", obj)
    put_driver(node, "host")
    node.write("/dev/char/195:0")
    node.write("/run/nvidia/validations/x")
    seat = node.seat("driver-validation", obj, NOBODYS)
    seat.user = NOBODYS
    assert seat.run([*body["command"], *body["args"]], validator(MIXED)).returncode != 0
    assert node.read("/run/nvidia/validations/driver-ready") is None


@pytest.mark.parametrize("policy", ["nvidia's plugin", "no toolkit"])
def test_nvidias_plugin_knows_where_the_driver_is_in_any_order(node: NodeFiles, sets: Sets, policy: str) -> None:
    obj = sets[policy]["purser-device-plugin-containerd"]
    put_driver(node, "container")
    check = node.seat("driver-validation", obj, NOBODYS)
    assert check.start(validator(policy)).returncode == 0
    told = node.seat("nvidia-device-plugin", obj).start({"nvidia-device-plugin": "env", "sleep": "exit 0"})
    assert "NVIDIA_DRIVER_ROOT=/run/nvidia/driver" in told.stdout.splitlines()
    node.write("/run/nvidia/validations/driver-ready", "NVIDIA_DRIVER_ROOT=/kept\n")
    assert check.start(validator(policy)).returncode == 0
    assert node.read("/run/nvidia/validations/driver-ready") == "NVIDIA_DRIVER_ROOT=/kept\n", "others may be reading it"


# --- operands that come back before the driver does


COMES = "mkdir -p /host/run/nvidia/driver/usr/bin && : > /host/run/nvidia/driver/usr/bin/nvidia-smi"
"""As a wait that is over by the driver's doing."""
WAITING = [
    ("purser-gpu-feature-discovery-containerd", MIXED),
    ("purser-dcgm-containerd", MIXED),
    ("purser-dcgm-exporter-containerd", MIXED),
    ("purser-mps-control-daemon-containerd", "nvidia's plugin"),
]


@pytest.mark.parametrize(("name", "policy"), WAITING)
def test_operands_that_the_driver_manager_lets_in_too_early_wait_for_the_driver(
    node: NodeFiles, sets: Sets, name: str, policy: str
) -> None:
    obj = sets[policy][name]
    assert containers(obj)[0]["name"] == "await-driver"
    seat = node.seat("await-driver", obj, NOBODYS)
    slept = seat.start({"sleep": COMES})
    assert (slept.returncode, slept.stdout) == (0, "waiting for the driver\n"), slept.stderr
    node.remove("/run/nvidia/driver/usr/bin/nvidia-smi")
    node.write("/run/nvidia/validations/driver-ready")
    assert seat.start({"sleep": "exit 1"}).stdout == "", "told where it is, nobody looks for it"


def test_the_toolkit_waits_for_the_driver_and_forgets_where_the_last_one_was(node: NodeFiles, sets: Sets) -> None:
    obj = sets[MIXED]["purser-container-toolkit-containerd"]
    node.write("/run/nvidia/validations/driver-ready", "NVIDIA_DRIVER_ROOT=/old\n")
    seat = node.seat("driver-validation", obj, NOBODYS)
    comes = "[ ! -e /run/nvidia/validations/driver-ready ] || exit 7; " + COMES
    assert seat.start({**validator(MIXED), "sleep": comes}).returncode == 0
    assert "NVIDIA_DRIVER_ROOT=/run/nvidia/driver\n" in (node.read("/run/nvidia/validations/driver-ready") or "")


def test_purser_s_own_look_where_drivers_may_be_as_long_as_nobody_says_where(node: NodeFiles, sets: Sets) -> None:
    obj = sets[MIXED]["purser-device-plugin-containerd"]
    assert looked_in(node, "agent", obj) == (node.host.resolve(), (node.host / "run/nvidia/driver").resolve())


def test_a_validator_that_leaves_takes_its_own_word_back_and_not_where_the_driver_is(
    node: NodeFiles, sets: Sets
) -> None:
    """It may leave for good, and those who need the driver outlive it."""
    seat = node.seat("nvidia-operator-validator", sets[MIXED]["purser-operator-validator-containerd"], NOBODYS)
    written = [f"/run/nvidia/validations/{each}-ready" for each in ("driver", "toolkit", "cuda", "plugin")]
    for each in written:
        node.write(each, "x")
    assert seat.run(seat.hook("lifecycle", "preStop")).returncode == 0
    assert [node.read(each) for each in written] == ["x", None, None, None]


def test_every_pod_that_validates_a_driver_may_list_its_namespaces_daemon_sets(sets: Sets) -> None:
    """The validator asks whether the driver is an operator's, and fails where it may not."""
    may_list = {
        account.name
        for account in ACCOUNTS
        for rule in account.namespace
        if "daemonsets" in rule["resources"] and "list" in rule["verbs"]
    }
    seen = set()
    for where, body, obj in every(sets):
        if body["name"] == "driver-validation":
            seen.add(obj["metadata"]["labels"][OPERAND_LABEL])
            assert obj["spec"]["template"]["spec"]["serviceAccountName"] in may_list, where
    assert seen == {"container-toolkit", "device-plugin", "operator-validator"}


def test_the_driver_manager_may_look_for_the_daemon_sets_of_pods_in_every_namespace() -> None:
    [account] = [each for each in ACCOUNTS if each.name == "purser-driver"]
    assert {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]} in account.cluster


# --- feature discovery


@pytest.mark.parametrize(("takes", "told"), [(True, "true"), (False, "false")])
def test_feature_discovery_writes_objects_where_they_are_read(takes: bool, told: str) -> None:
    obj = daemon_set("purser-gpu-feature-discovery-containerd", node_features=takes)
    body = container("gpu-feature-discovery", obj)
    assert variables(body)["USE_NODE_FEATURE_API"] == told
    assert {each["name"] for each in body["env"] if "valueFrom" in each} >= {"NAMESPACE", "NODE_NAME", "POD_NAME"}
    [account] = [each for each in ACCOUNTS if each.name == "purser-gpu-feature-discovery"]
    [rule] = [each for each in account.namespace if each["resources"] == ["nodefeatures"]]
    assert {"get", "create", "update"} <= set(rule["verbs"])
