"""The driver: one DaemonSet per pool of nodes with equal OS, kernel and profile.

Only the operator moves pods away from a node (``upgrade``). NVIDIA's driver manager is told not to: two that evict
contradict one another. It still unloads an old driver; one that was loaded from the same configuration it leaves alone,
so that a driver container that restarts takes no GPU away from running pods.
"""

from collections.abc import Sequence

import msgspec

from purser.operator.model import Pool, Rendered, Wanted
from purser.operator.names import DRIVER_CONFIG_LABEL, POOL_LABEL
from purser.operator.operands import driver_files as files
from purser.operator.operands.hashes import digest
from purser.operator.operands.mounts import host_root
from purser.operator.operands.parts import (
    NAMESPACE,
    NODE_NAME,
    Container,
    Placement,
    Pod,
    Raw,
    container,
    daemon_set,
    field_of_pod,
    host_network,
    host_path,
)
from purser.operator.order import Operand
from purser.operator.policy.driver import DriverSpec, Probe, Profile
from purser.operator.policy.fields import Image
from purser.operator.policy.images import DEFAULTS, is_whole, reference
from purser.operator.policy.sections import Sidecar
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-driver"
COMPONENT = {"app.kubernetes.io/component": "nvidia-driver"}
"""Pods with it keep away from one another: no node ever runs two drivers, not even while it changes pools."""

_DIGEST = "DRIVER_CONFIG_DIGEST"
_LOADED_FROM = ("name", "image", "command", "args", "env", "envFrom")
"""Of a container that loads modules."""

_LOADED = ["sh", "-c", "test -e /sys/module/nvidia/refcnt && nvidia-smi"]
_STARTUP = Probe(initial_delay_seconds=60, period_seconds=10, timeout_seconds=60, failure_threshold=120)
_LATER = Probe(period_seconds=30, timeout_seconds=30, failure_threshold=3)
_WAIT = 'until [ -d /run/nvidia/driver/usr/src ] && lsmod | grep -q nvidia; do sleep 10; done; exec {} install "$@"'


def render(wanted: Wanted) -> list[Rendered]:
    """A DaemonSet per pool."""
    spec = wanted.policy.spec
    if Operand.DRIVER not in spec.enabled:
        return []
    return [
        daemon_set(wanted, Operand.DRIVER, pool.daemon_set, _pod(spec, pool), _placement(pool)) for pool in wanted.pools
    ]


def _placement(pool: Pool) -> Placement:
    """On its pool's nodes, away from other drivers, and replaced only when the operator says so."""
    term = {"labelSelector": {"matchLabels": COMPONENT}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return Placement(label=(POOL_LABEL, pool.name), affinity=affinity, on_delete=True)


def image_of(driver: DriverSpec, pool: Pool) -> str:
    """The driver image of a pool's nodes.

    Its tag ends with OS and version; one with precompiled modules has the kernel before them. A digest, or a whole
    reference, is taken as it is.
    """
    kernel = f"-{pool.kernel}" if driver.use_precompiled else ""
    return reference(
        DEFAULTS["driver"],
        _image(driver, profile_of(driver, pool), pool),
        suffix=f"{kernel}-{pool.os_id}{pool.os_version}",
    )


def profile_of(driver: DriverSpec, pool: Pool) -> Profile:
    """The pool's profile; an empty one for nodes that no profile selects, or whose profile is gone."""
    found = [profile for profile in driver.profiles if profile.name == pool.profile]
    return found[0] if found else Profile(name="none", node_selector={})


def _image(driver: DriverSpec, profile: Profile, pool: Pool) -> Image:
    """The profile's parts, then the driver's. A whole reference in a profile stands alone; one needs no version."""
    if is_whole(profile.image):
        return Image(repository=profile.repository, image=profile.image, version=profile.version)
    version = profile.version or driver.version or ("" if is_whole(driver.image) else pool.version)
    repository, image = profile.repository or driver.repository, profile.image or driver.image
    return Image(repository=repository, image=image, version=version)


def _pod(spec: ClusterPolicySpec, pool: Pool) -> Pod:
    image = image_of(spec.driver, pool)
    beside = [*_peermem(spec, image), *_sidecars(spec, pool)]
    main = _driver(spec, pool, image)
    configuration = _configuration(spec, [main, *beside])
    return Pod(
        account=ACCOUNT,
        init=[_manager(spec, configuration)],
        containers=[_told(main, configuration), *beside],
        more={"hostPID": True, **host_network(spec.driver)},
        labels={"app": "nvidia-driver-daemonset", **COMPONENT, DRIVER_CONFIG_LABEL: configuration},
    )


def _configuration(spec: ClusterPolicySpec, containers: Sequence[Container]) -> str:
    """Digest of what is loaded into the kernel, and nothing else: where it is equal, a new template makes no new
    driver, and no pod has to leave its GPU for it."""
    loaded = [{field: each.body.get(field) for field in _LOADED_FROM} for each in containers]
    return digest([loaded, spec.driver.kernel_module_config.name, spec.host_paths.driver_install_dir], 16)


def _told(main: Container, configuration: str) -> Container:
    """The driver leaves behind which configuration it was loaded from; the manager compares it with its own."""
    told = [*main.body["env"], {"name": _DIGEST, "value": configuration}]
    return msgspec.structs.replace(main, body={**main.body, "env": told})


def _manager(spec: ClusterPolicySpec, configuration: str) -> Container:
    driver = spec.driver
    env: dict[str, str | Raw] = {
        "NODE_NAME": NODE_NAME,
        "OPERATOR_NAMESPACE": NAMESPACE,
        "NVIDIA_VISIBLE_DEVICES": "void",
        "ENABLE_GPU_POD_EVICTION": "false",
        "ENABLE_AUTO_DRAIN": "false",
        _DIGEST: configuration,
        **_rdma_variables(driver),
        **{each.name: each.value for each in driver.manager.env},
    }
    return container(
        "k8s-driver-manager",
        reference(DEFAULTS["driver-manager"], driver.manager),
        driver.manager,
        command=["driver-manager"],
        args=["uninstall_driver"],
        env=env,
        mounts=[files.RUN_NVIDIA, host_root(spec), host_path("host-sys", "/sys", type="Directory"), files.MELLANOX],
        privileged=True,
        resources=driver.resources,
    )


def _driver(spec: ClusterPolicySpec, pool: Pool, image: str) -> Container:
    driver = spec.driver
    probes = {
        "startupProbe": _probe(driver.startup_probe, _STARTUP),
        **{
            name: _probe(given, _LATER)
            for name, given in (("livenessProbe", driver.liveness_probe), ("readinessProbe", driver.readiness_probe))
            if given != Probe()
        },
    }
    secrets = {"envFrom": [{"secretRef": {"name": driver.secret_env}}]} if driver.secret_env else {}
    return container(
        "nvidia-driver-ctr",
        image,
        driver,
        command=["nvidia-driver"],
        args=["init"],
        env=_driver_variables(spec, pool),
        mounts=files.driver_mounts(spec, pool),
        privileged=True,
        more={**probes, **secrets},
    )


def _driver_variables(spec: ClusterPolicySpec, pool: Pool) -> dict[str, str | Raw]:
    driver = spec.driver
    modules = profile_of(driver, pool).kernel_module_type or driver.kernel_module_type
    return {
        "NODE_NAME": NODE_NAME,
        "NODE_IP": field_of_pod("status.hostIP"),
        "NVIDIA_VISIBLE_DEVICES": "void",
        "KERNEL_MODULE_TYPE": modules,
        **({"OPEN_KERNEL_MODULES_ENABLED": "true"} if modules == "open" else {}),
        **({"GDRCOPY_ENABLED": "true"} if spec.gdrcopy.enabled else {}),
        **({"GDS_ENABLED": "true"} if spec.gds.enabled else {}),
        **_rdma_variables(driver),
    }


def _rdma_variables(driver: DriverSpec) -> dict[str, str | Raw]:
    if not driver.rdma.enabled:
        return {}
    host = {"USE_HOST_MOFED": "true"} if driver.rdma.use_host_mofed else {}
    return {"GPU_DIRECT_RDMA_ENABLED": "true", **host}


def _peermem(spec: ClusterPolicySpec, image: str) -> list[Container]:
    driver = spec.driver
    if not driver.rdma.enabled:
        return []
    check = ["sh", "-c", "nvidia-driver probe_nvidia_peermem"]
    return [
        container(
            "nvidia-peermem-ctr",
            image,
            Image(image_pull_policy=driver.image_pull_policy),
            command=["nvidia-driver"],
            args=["reload_nvidia_peermem"],
            env={"USE_HOST_MOFED": "true"} if driver.rdma.use_host_mofed else {},
            mounts=[files.RUN_NVIDIA, files.VAR_LOG, files.DEV_LOG, files.MELLANOX, *files.modules(spec)],
            privileged=True,
            resources=driver.resources,
            more={"startupProbe": _ask(check), "livenessProbe": _ask(check, period_s=30, failures=1)},
        )
    ]


def _sidecars(spec: ClusterPolicySpec, pool: Pool) -> list[Container]:
    known = [
        ("nvidia-fs-ctr", "gds", spec.gds, "nvidia-gds-driver", "nvidia_fs"),
        ("nvidia-gdrcopy-ctr", "gdrcopy", spec.gdrcopy, "nvidia-gdrcopy-driver", "gdrdrv"),
    ]
    return [_sidecar(*each, pool) for each in known if each[2].enabled]


def _sidecar(name: str, default: str, section: Sidecar, installer: str, module: str, pool: Pool) -> Container:
    return container(
        name,
        reference(DEFAULTS[default], section, suffix=f"-{pool.os_id}{pool.os_version}"),
        section,
        command=["bash", "-xc"],
        args=[_WAIT.format(installer), installer, *section.args],
        env={each.name: each.value for each in section.env},
        mounts=[files.RUN_NVIDIA, files.VAR_LOG, files.DEV_LOG],
        privileged=True,
        more={"startupProbe": _ask(["sh", "-c", f"lsmod | grep {module}"])},
    )


def _ask(command: list[str], *, period_s: int = 10, failures: int = 120) -> Raw:
    timing = {"initialDelaySeconds": 10, "periodSeconds": period_s, "timeoutSeconds": 10}
    return {"exec": {"command": command}, **timing, "failureThreshold": failures}


def _probe(given: Probe, default: Probe) -> Raw:
    timing = {
        "initialDelaySeconds": given.initial_delay_seconds or default.initial_delay_seconds,
        "periodSeconds": given.period_seconds or default.period_seconds,
        "timeoutSeconds": given.timeout_seconds or default.timeout_seconds,
        "failureThreshold": given.failure_threshold or default.failure_threshold,
        "successThreshold": given.success_threshold or default.success_threshold,
    }
    return {"exec": {"command": _LOADED}, **{name: value for name, value in timing.items() if value}}
