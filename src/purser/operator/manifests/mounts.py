"""Common parts of several operands' pods: host folders and their mounts, init containers that wait until a driver
works, and the configuration that NVIDIA's device plugin and feature discovery share.

NVIDIA's driver manager pauses operands before it unloads a driver, and admits them again before the next one is ready;
Purser's gates see both too late. So every operand that needs a driver waits until one works. The container toolkit
comes first: it has NVIDIA's validator write down its place (`DRIVER_READY`); the end of the driver's pod removes that
file.

The configuration is chosen per node from a ConfigMap: a container beside theirs follows the node's label
``nvidia.com/device-plugin.config`` and signals them to reload.
"""

from collections.abc import Mapping, Sequence

import msgspec

from purser.operator.manifests.parts import (
    NAMESPACE,
    NODE_NAME,
    ContainerTemplate,
    MountedVolume,
    Raw,
    config_map,
    container,
    host_path,
)
from purser.operator.policy.fields import DEFAULTS, EnvVar, Image, reference
from purser.operator.policy.spec import ClusterPolicySpec

HOST = "/host"
"""Where containers see the node's root."""
DRIVER_ROOT = "/driver-root"
"""Where containers see the root of a driver that is not the node's own. Both paths are NVIDIA's: the validator writes
one of them into `DRIVER_READY`."""
CDI_ROOT = "/var/run/cdi"
VALIDATIONS_DIR = "/run/nvidia/validations"
DRIVER_READY = f"{VALIDATIONS_DIR}/driver-ready"
"""Written on each node by NVIDIA's validator once a driver works there, with where it is: the node's own or a
container's, for in one cluster there may be both."""

RUN_NVIDIA = host_path("run-nvidia", "/run/nvidia", type="DirectoryOrCreate", propagation="HostToContainer")
VALIDATIONS = host_path(
    "run-nvidia-validations", VALIDATIONS_DIR, type="DirectoryOrCreate", propagation="Bidirectional"
)
"""What NVIDIA's validator found; the node status exporter reads it."""
CDI = host_path("cdi-root", CDI_ROOT, type="DirectoryOrCreate")


def host_root(spec: ClusterPolicySpec) -> MountedVolume:
    """The node's root, to look at."""
    return host_path("host-root", spec.host_paths.root_fs, HOST, propagation="HostToContainer", read_only=True)


def driver_root(spec: ClusterPolicySpec, at: str = DRIVER_ROOT) -> MountedVolume:
    """The root of a driver that is not the node's own."""
    folder = spec.host_paths.driver_install_dir
    return host_path("driver-install-dir", folder, at, type="DirectoryOrCreate", propagation="HostToContainer")


def host_mount_path(path: str) -> str:
    """A path of the host as containers see it that mount its root: ``/host`` for ``/``."""
    return HOST + path.rstrip("/")


# --- init containers


_VALIDATOR = "nvidia-validator"
_WAIT_SCRIPT = "until {}; do echo 'waiting for the driver'; sleep 5; done"
_DRIVER_KNOWN_TEST = f"[ -f {DRIVER_READY} ]"


def driver_validation(spec: ClusterPolicySpec, *, anew: bool = True) -> ContainerTemplate:
    """NVIDIA's validator waits until any driver of the node works, and writes down its place. It looks for DaemonSets
    of drivers in its namespace. ``anew``: also where that was done before."""
    section = spec.validator
    install = spec.host_paths.driver_install_dir
    own: dict[str, str | Raw] = {
        "NODE_NAME": NODE_NAME,
        "OPERATOR_NAMESPACE": NAMESPACE,
        "DRIVER_INSTALL_DIR": install,
        "DRIVER_INSTALL_DIR_CTR_PATH": install,
        "HOST_ROOT": spec.host_paths.root_fs,
        "WITH_WAIT": "true",
    }
    mounts = (host_root(spec), driver_root(spec, at=install), host_path("host-dev-char", "/dev/char", "/host-dev-char"))
    script = _VALIDATOR if anew else f"{_DRIVER_KNOWN_TEST} || {_VALIDATOR}"
    return validation(spec, "driver", own, section.driver.env, mounts, script)


def validation(
    spec: ClusterPolicySpec,
    component: str,
    own: Mapping[str, str | Raw],
    given: Sequence[EnvVar],
    mounts: Sequence[MountedVolume] = (),
    script: str = _VALIDATOR,
) -> ContainerTemplate:
    """One check of NVIDIA's validator."""
    env = {"COMPONENT": component, "WITH_WAIT": "false", **own, **{each.name: each.value for each in given}}
    return _validator_container(spec, f"{component}-validation", script, env, (VALIDATIONS, *mounts))


def wait_for_driver(spec: ClusterPolicySpec) -> ContainerTemplate:
    """Waits for a driver on the node, and no longer where people keep those away who would write down where it is."""
    # A driver's container shows its root last, once its daemons run; through the node's root it is never an old one.
    installed = host_mount_path(spec.host_paths.driver_install_dir)
    programs = (
        f"{HOST}/usr/bin/nvidia-smi",
        f"{installed}/usr/bin/nvidia-smi",
        f"{installed}/bin/nvidia-smi",
    )
    script = _WAIT_SCRIPT.format(" || ".join((_DRIVER_KNOWN_TEST, *(f"[ -e {each} ]" for each in programs))))
    return _validator_container(
        spec, "await-driver", script, {"NVIDIA_VISIBLE_DEVICES": "void"}, (VALIDATIONS, host_root(spec))
    )


def with_driver_variables(program: str, *, pause_s: int = 0) -> list[str]:
    """The command of a container that gets the driver's place from `DRIVER_READY`, as variables; its arguments go to
    the program. It waits once more: a restarted validation removes the file for a moment."""
    pause = f" sleep {pause_s};" if pause_s else ""
    script = f'{_WAIT_SCRIPT.format(_DRIVER_KNOWN_TEST)}; set -a; . {DRIVER_READY}; set +a;{pause} exec {program} "$@"'
    return ["sh", "-c", script, program]


def _validator_container(
    spec: ClusterPolicySpec, name: str, script: str, env: Mapping[str, str | Raw], mounts: Sequence[MountedVolume]
) -> ContainerTemplate:
    section = spec.validator
    return container(
        name,
        reference(DEFAULTS["operator-validator"], section),
        Image(image_pull_policy=section.image_pull_policy, image_pull_secrets=section.image_pull_secrets),
        command=["sh", "-c"],
        args=[script],
        env=env,
        mounts=mounts,
        privileged=True,
    )


# --- configuration of the device plugin and feature discovery


_CONFIG_VOLUME = MountedVolume(name="config", at="/config", source={"emptyDir": {}})


class PluginConfigMount(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod has for its configuration; all empty without a ConfigMap."""

    env: dict[str, str | Raw] = {}
    """Of the main container."""
    mounts: Sequence[MountedVolume] = ()
    """Of the main container."""
    init: Sequence[ContainerTemplate] = ()
    beside: Sequence[ContainerTemplate] = ()
    pod: Raw = {}


def configured(spec: ClusterPolicySpec, process: str) -> PluginConfigMount:
    """``process`` is the name of the process that is signalled on changes."""
    config = spec.device_plugin.config
    if not config.name:
        return PluginConfigMount()
    mounts = (_CONFIG_VOLUME, config_map("available-configs", config.name, "/available-configs"))
    return PluginConfigMount(
        env={"CONFIG_FILE": "/config/config.yaml"},
        mounts=mounts,
        init=(_manager(spec, "config-manager-init", mounts, {"ONESHOT": "true", "SEND_SIGNAL": "false"}),),
        beside=(
            _manager(
                spec,
                "config-manager",
                mounts,
                {"ONESHOT": "false", "SEND_SIGNAL": "true", "SIGNAL": "1", "PROCESS_TO_SIGNAL": process},
            ),
        ),
        pod={"shareProcessNamespace": True},
    )


def _manager(
    spec: ClusterPolicySpec, name: str, mounts: Sequence[MountedVolume], env: dict[str, str | Raw]
) -> ContainerTemplate:
    section = spec.device_plugin
    plugin = section if section.flavor == "nvidia" else spec.gfd
    return container(
        name,
        reference(DEFAULTS["device-plugin"], plugin),
        Image(image_pull_policy=plugin.image_pull_policy, image_pull_secrets=plugin.image_pull_secrets),
        command=["config-manager"],
        env={
            "NODE_NAME": NODE_NAME,
            "NODE_LABEL": "nvidia.com/device-plugin.config",
            "CONFIG_FILE_SRCDIR": "/available-configs",
            "CONFIG_FILE_DST": "/config/config.yaml",
            "DEFAULT_CONFIG": section.config.default,
            "FALLBACK_STRATEGIES": "empty",
            **env,
        },
        mounts=mounts,
        privileged=True,
    )
