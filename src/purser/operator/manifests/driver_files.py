"""What the driver of a pool is configured by: its profile, the files of the host and of ConfigMaps that it reads."""

from collections.abc import Mapping

import msgspec

from purser.operator.manifests.parts import MountedVolume, config_files, config_map, host_path
from purser.operator.model import Pool, Raw, RenderInputs, Snapshot
from purser.operator.names import OPERAND_LABEL
from purser.operator.order import Operand
from purser.operator.policy.driver import SIDECARS, DriverProfile, DriverSpec
from purser.operator.policy.fields import Sidecar
from purser.operator.policy.sections import DaemonSets
from purser.operator.policy.spec import ClusterPolicySpec


def profile_of(driver: DriverSpec, pool: Pool) -> DriverProfile:
    """The pool's profile; an empty one for nodes that no profile selects, or whose profile is gone."""
    found = [profile for profile in driver.profiles if profile.name == pool.profile]
    return found[0] if found else DriverProfile(name="none", node_selector={})


def with_profile(wanted: RenderInputs, pool: Pool) -> RenderInputs:
    """As if the policy were there for this pool's drivers alone: sections that say something of drivers say what its
    profile does. Not so the parts of the image: whole references stand alone, whosever they are."""
    spec = wanted.policy.spec
    fields = profile_of(spec.driver, pool).said()
    beside = {name: fields.pop(name) for name in SIDECARS if name in fields}
    driver = msgspec.structs.replace(spec.driver, **fields)
    common = _merged_common(spec.daemonsets, driver)
    changed = msgspec.structs.replace(spec, driver=driver, daemonsets=common, **beside)
    return msgspec.structs.replace(wanted, policy=msgspec.structs.replace(wanted.policy, spec=changed))


def has_driver_sidecar(spec: ClusterPolicySpec, name: str) -> bool:
    """Whether the driver of some node has this sidecar, ``gds`` or ``gdrcopy``."""
    everywhere: Sidecar = getattr(spec, name)
    return everywhere.enabled or any(
        beside is not None and beside.enabled for each in spec.driver.profiles if (beside := getattr(each, name))
    )


def _merged_common(common: DaemonSets, driver: DriverSpec) -> DaemonSets:
    more = tuple(each for each in driver.tolerations if each not in common.tolerations)
    return msgspec.structs.replace(
        common,
        labels={**common.labels, **driver.labels},
        annotations={**common.annotations, **driver.annotations},
        tolerations=(*common.tolerations, *more),
        priority_class_name=driver.priority_class_name or common.priority_class_name,
        pod_security_context=driver.pod_security_context or common.pod_security_context,
    )


# --- files


RUN_NVIDIA = host_path("run-nvidia", "/run/nvidia", type="DirectoryOrCreate", propagation="Bidirectional")
VAR_LOG = host_path("var-log", "/var/log")
DEV_LOG = host_path("dev-log", "/dev/log")
MELLANOX = host_path(
    "run-mellanox-drivers", "/run/mellanox/drivers", type="DirectoryOrCreate", propagation="HostToContainer"
)

_MOFED = "/run/mellanox/drivers/usr/src"
_DEBIAN = ("/etc/apt/sources.list.d", "/usr/local/share/ca-certificates")
_RED_HAT = ("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem")
_SUSE = ("/etc/zypp/repos.d", "/etc/pki/trust/anchors")
PACKAGES = {
    **dict.fromkeys(("debian", "ubuntu"), _DEBIAN),
    **dict.fromkeys(("centos", "rhel", "rocky", "ol", "almalinux", "amzn", "fedora"), _RED_HAT),
    **dict.fromkeys(("sles", "sl-micro"), _SUSE),
}
"""By OS: where it keeps package repositories and certificates."""

_SECRETS = "/run/secrets"
_FOLDER: Raw = {"type": "Directory", "read_only": True}
SUBSCRIPTIONS = {
    "rhel": (
        host_path("etc-pki-entitlement", "/etc/pki/entitlement", f"{_SECRETS}/etc-pki-entitlement", **_FOLDER),
        host_path(
            "redhat-repo", "/etc/yum.repos.d/redhat.repo", f"{_SECRETS}/redhat.repo", type="File", read_only=True
        ),
        host_path("rhsm", "/etc/rhsm", f"{_SECRETS}/rhsm", **_FOLDER),
    ),
    **dict.fromkeys(
        ("sles", "sl-micro"),
        (
            host_path("zypp-credentials", "/etc/zypp/credentials.d", **_FOLDER),
            host_path("suse-connect", "/etc/SUSEConnect", type="FileOrCreate", read_only=True),
        ),
    ),
}
"""By OS: what of the host's subscription is needed to install packages. Red Hat's CRI-O hands it to every container by
itself."""

ConfigKeys = Mapping[str, tuple[str, ...]]
"""Keys of ConfigMaps, by name. What people give comes beside the files that an image has in the same folder, and takes
the place of those of the same name only: the driver's image has its installer in /drivers, Ubuntu's its own list of
sources where people's come, and Red Hat's writes to its folder of repositories."""


def awaits_config_map(driver: DriverSpec, keys: ConfigKeys) -> bool:
    """Whether one of these ConfigMaps is not there: a driver without it would be another one."""
    packages = () if driver.use_precompiled else (driver.repo_config.config_map_name, driver.cert_config.name)
    return any(name and name not in keys for name in (driver.kernel_module_config.name, *packages))


def driver_mounts(spec: ClusterPolicySpec, pool: Pool, keys: ConfigKeys) -> list[MountedVolume]:
    """Of the driver container."""
    driver = spec.driver
    mofed = host_path("mlnx-ofed-usr-src", _MOFED, type="DirectoryOrCreate", propagation="HostToContainer")
    if driver.rdma.enabled and driver.rdma.use_host_mofed:
        mofed = msgspec.structs.replace(mofed, source={"hostPath": {"path": "/usr/src", "type": "DirectoryOrCreate"}})
    firmware = f"{spec.host_paths.driver_install_dir}/lib/firmware"
    return [
        RUN_NVIDIA,
        host_path("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager", type="DirectoryOrCreate"),
        host_path("run-nvidia-topologyd", "/run/nvidia-topologyd", type="DirectoryOrCreate"),
        VAR_LOG,
        DEV_LOG,
        host_path("host-os-release", "/etc/os-release", "/host-etc/os-release", read_only=True),
        mofed,
        MELLANOX,
        host_path("host-sys-devices-system", "/sys/devices/system", type="Directory"),
        host_path("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
        host_path("nv-firmware", firmware, "/lib/firmware", type="DirectoryOrCreate"),
        *modules(spec, keys),
        *_licences(driver),
        *_topology(driver),
        *(_precompiled(pool) if driver.use_precompiled else _build_mounts(driver, pool, keys)),
    ]


def modules(spec: ClusterPolicySpec, keys: ConfigKeys) -> list[MountedVolume]:
    """Parameters of the kernel modules."""
    name = spec.driver.kernel_module_config.name
    return config_files("kernel-module-config", name, "/drivers", keys[name]) if name else []


def _licences(driver: DriverSpec) -> list[MountedVolume]:
    config = driver.licensing_config
    if not (config.secret_name or config.config_map_name):
        return []
    known = {"gridd.conf": "/drivers/gridd.conf"}
    if config.nls_enabled:
        token = "client_configuration_token.tok"
        known[token] = f"/drivers/ClientConfigToken/{token}"
    items = [{"key": key, "path": key} for key in known]
    if config.secret_name:
        source = {"secret": {"secretName": config.secret_name, "items": items}}
    else:
        source = {"configMap": {"name": config.config_map_name, "items": items}}
    return [
        MountedVolume(name="licensing-config", at=at, source=source, read_only=True, sub_path=key)
        for key, at in known.items()
    ]


def _topology(driver: DriverSpec) -> list[MountedVolume]:
    name, key = driver.virtual_topology.config, "nvidia-topologyd.conf"
    return [config_map("topology-config", name, f"/etc/nvidia/{key}", key=key)] if name else []


def _precompiled(pool: Pool) -> list[MountedVolume]:
    """Precompiled modules need no packages; on SUSE they use the host's own modules."""
    if pool.os_id not in ("sles", "sl-micro"):
        return []
    return [host_path("lib-modules", "/lib/modules", "/run/host/lib/modules", type="Directory", read_only=True)]


def _build_mounts(driver: DriverSpec, pool: Pool, keys: ConfigKeys) -> list[MountedVolume]:
    """Packages are installed: from given repositories, or with the host's subscription."""
    repositories, certificates = PACKAGES.get(pool.os_id, _RED_HAT)
    given, trusted = driver.repo_config.config_map_name, driver.cert_config.name
    found = config_files("repo-config", given, repositories, keys[given]) if given else []
    found += config_files("cert-config", trusted, certificates, keys[trusted]) if trusted else []
    if not (pool.os_id == "rhel" and (given or pool.runtime == "crio")):
        found += SUBSCRIPTIONS.get(pool.os_id, ())
    return found


# --- keys of ConfigMaps


def config_keys(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """By ConfigMap. One that is away for a moment has those that live drivers have: no node changes its driver because
    a ConfigMap is replaced by deleting it first."""
    found: dict[str, tuple[str, ...]] = {}
    for obj in snapshot.daemon_sets.values():
        if (obj["metadata"].get("labels") or {}).get(OPERAND_LABEL) == Operand.DRIVER:
            found |= _mounted_keys(obj["spec"]["template"]["spec"])
    return found | dict(snapshot.config_keys)


def _mounted_keys(pod: Raw) -> dict[str, tuple[str, ...]]:
    """Of ConfigMaps whose keys are files of their own."""
    names = {each["name"]: each["configMap"]["name"] for each in pod.get("volumes") or () if "configMap" in each}
    keys: dict[str, set[str]] = {}
    for body in pod["containers"]:
        for mount in body.get("volumeMounts") or ():
            if mount["name"] in names and mount.get("subPath"):
                keys.setdefault(names[mount["name"]], set()).add(mount["subPath"])
    return {name: tuple(sorted(each)) for name, each in keys.items()}
