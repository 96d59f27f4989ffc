"""The driver: one DaemonSet per pool of nodes with equal OS, kernel and profile.

Only the operator evicts pods from a node (``upgrade``). Eviction by NVIDIA's driver manager is turned off, because the
two would conflict. It still unloads an old driver, but not one that was loaded from the same configuration, so that a
restarted driver container takes no GPU away from running pods.
"""

from collections.abc import Sequence

import msgspec

from purser.core.names import POOL_LABEL
from purser.operator.manifests import driver_files as files
from purser.operator.manifests.driver_files import profile_of, with_profile
from purser.operator.manifests.mounts import DRIVER_READY, VALIDATIONS_DIR, host_root
from purser.operator.manifests.parts import (
    NAMESPACE,
    NODE_NAME,
    ContainerTemplate,
    DaemonSetPlacement,
    PodTemplate,
    Raw,
    container,
    daemon_set,
    digest,
    field_of_pod,
    host_network,
    host_path,
)
from purser.operator.model import Pool, RenderedManifest, RenderInputs
from purser.operator.names import DRIVER_CONFIG_LABEL
from purser.operator.order import Operand
from purser.operator.policy.driver import DriverProfile, DriverSpec, Probe
from purser.operator.policy.fields import DEFAULTS, Image, Sidecar, is_whole, reference
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-driver"
COMPONENT = {"app.kubernetes.io/component": "nvidia-driver"}
"""Pods with it keep away from one another: no node ever runs two drivers, not even while it changes pools."""

_CONFIG_DIGEST_VARIABLE = "DRIVER_CONFIG_DIGEST"
_DIGEST_FIELDS = ("name", "image", "command", "args", "env", "envFrom")
"""Of a container that loads modules."""

_IS_LOADED_COMMAND = ["sh", "-c", "test -e /sys/module/nvidia/refcnt && nvidia-smi"]
_READY = f"{VALIDATIONS_DIR}/.driver-ctr-ready"
"""By it peermem's container and NVIDIA's validator know that the driver is there."""
_DAEMONS = f"{VALIDATIONS_DIR}/.driver-daemons-status"
"""Written by the driver's image from v26.7.0 on: NotReady before anything else, Ready once fabric manager and
persistenced run. Older images write nothing, and are ready when nvidia-smi is."""
_STARTUP_SCRIPT = f"""set -eu
fail() {{ echo "$1"; exit 1; }}
mkdir -p {VALIDATIONS_DIR}
[ -f /sys/module/nvidia/refcnt ] || fail 'the kernel module nvidia is not loaded'
daemons=$(cat {_DAEMONS} 2>/dev/null || echo Ready)
[ "$daemons" = Ready ] || fail "the driver's daemons are not ready: $daemons"
nvidia-smi || fail 'nvidia-smi failed'
{{
  echo "GDRCOPY_ENABLED: ${{GDRCOPY_ENABLED:-false}}"
  echo "GDS_ENABLED: ${{GDS_ENABLED:-false}}"
  echo "GPU_DIRECT_RDMA_ENABLED: ${{GPU_DIRECT_RDMA_ENABLED:-false}}"
}} > {_READY}.tmp
mv {_READY}.tmp {_READY}"""
_CLEAR_COMMAND = f"rm -f {_READY} {_DAEMONS}"
_INIT_COMMAND = ["sh", "-c", f'{_CLEAR_COMMAND}; exec nvidia-driver "$@"', "nvidia-driver"]
"""What a driver left behind that was killed would be taken for the word of the next one."""
_STOP_COMMAND = f"{_CLEAR_COMMAND} {DRIVER_READY}"
_STARTUP_PROBE = Probe(initial_delay_seconds=60, period_seconds=10, timeout_seconds=60, failure_threshold=120)
_RUNNING_PROBE = Probe(period_seconds=30, timeout_seconds=30, failure_threshold=3)
_INSTALL_AFTER_DRIVER = (
    'until [ -d /run/nvidia/driver/usr/src ] && lsmod | grep -q nvidia; do sleep 10; done; exec {} install "$@"'
)


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """A DaemonSet per pool; none as long as a ConfigMap that its driver is to have is not there."""
    by_pool = [(with_profile(wanted, pool), pool) for pool in wanted.pools]
    return [
        _daemon_set(each, pool)
        for each, pool in by_pool
        if not files.awaits_config_map(each.policy.spec.driver, wanted.config_keys)
    ]


def _daemon_set(wanted: RenderInputs, pool: Pool) -> RenderedManifest:
    pod = _pod(wanted.policy.spec, pool, wanted.config_keys)
    return daemon_set(wanted, Operand.DRIVER, pool.daemon_set, pod, _placement(pool))


def _placement(pool: Pool) -> DaemonSetPlacement:
    """On its pool's nodes, away from other drivers, and replaced only when the operator says so."""
    term = {"labelSelector": {"matchLabels": COMPONENT}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return DaemonSetPlacement(label=(POOL_LABEL, pool.name), affinity=affinity, on_delete=True)


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


def _image(driver: DriverSpec, profile: DriverProfile, pool: Pool) -> Image:
    """The profile's parts, then the driver's. A whole reference in a profile stands alone; one needs no version."""
    if is_whole(profile.image):
        return Image(repository=profile.repository, image=profile.image, version=profile.version)
    version = profile.version or driver.version or ("" if is_whole(driver.image) else pool.version)
    repository, image = profile.repository or driver.repository, profile.image or driver.image
    return Image(repository=repository, image=image, version=version)


def _pod(spec: ClusterPolicySpec, pool: Pool, keys: files.ConfigKeys) -> PodTemplate:
    image = image_of(spec.driver, pool)
    beside = [*_peermem(spec, image, keys), *_sidecars(spec, pool)]
    main = _driver(spec, pool, image, keys)
    configuration = _configuration(spec, keys, [main, *beside])
    return PodTemplate(
        account=ACCOUNT,
        init=[_manager(spec, configuration)],
        containers=[_with_digest(main, configuration), *beside],
        other_fields={"hostPID": True, **host_network(spec.driver)},
        labels={"app": "nvidia-driver-daemonset", **COMPONENT, DRIVER_CONFIG_LABEL: configuration},
    )


def _configuration(spec: ClusterPolicySpec, keys: files.ConfigKeys, containers: Sequence[ContainerTemplate]) -> str:
    """Digest of what is loaded into the kernel, and nothing else: where it is equal, a new template makes no new
    driver, and no pod has to leave its GPU for it."""
    loaded = [{field: each.body.get(field) for field in _DIGEST_FIELDS} for each in containers]
    modules = spec.driver.kernel_module_config.name
    return digest([loaded, modules, spec.host_paths.driver_install_dir, *keys.get(modules, ())], 16)


def _with_digest(main: ContainerTemplate, configuration: str) -> ContainerTemplate:
    """The driver leaves behind which configuration it was loaded from; the manager compares it with its own. How it is
    started makes no other driver."""
    env = [*main.body["env"], {"name": _CONFIG_DIGEST_VARIABLE, "value": configuration}]
    return msgspec.structs.replace(main, body={**main.body, "command": _INIT_COMMAND, "env": env})


def _manager(spec: ClusterPolicySpec, configuration: str) -> ContainerTemplate:
    driver = spec.driver
    env: dict[str, str | Raw] = {
        "NODE_NAME": NODE_NAME,
        "OPERATOR_NAMESPACE": NAMESPACE,
        "NVIDIA_VISIBLE_DEVICES": "void",
        "ENABLE_GPU_POD_EVICTION": "false",
        "ENABLE_AUTO_DRAIN": "false",
        _CONFIG_DIGEST_VARIABLE: configuration,
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


def _driver(spec: ClusterPolicySpec, pool: Pool, image: str, keys: files.ConfigKeys) -> ContainerTemplate:
    driver = spec.driver
    probes = {
        "startupProbe": _probe(driver.startup_probe, _STARTUP_PROBE, ["sh", "-c", _STARTUP_SCRIPT]),
        **{
            name: _probe(given, _RUNNING_PROBE, _IS_LOADED_COMMAND)
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
        env=_driver_variables(spec),
        mounts=files.driver_mounts(spec, pool, keys),
        privileged=True,
        other_fields={
            **probes,
            **secrets,
            "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _STOP_COMMAND]}}},
        },
    )


def _driver_variables(spec: ClusterPolicySpec) -> dict[str, str | Raw]:
    driver = spec.driver
    modules = driver.kernel_module_type
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


def _peermem(spec: ClusterPolicySpec, image: str, keys: files.ConfigKeys) -> list[ContainerTemplate]:
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
            mounts=[files.RUN_NVIDIA, files.VAR_LOG, files.DEV_LOG, files.MELLANOX, *files.modules(spec, keys)],
            privileged=True,
            resources=driver.resources,
            other_fields={"startupProbe": _ask(check), "livenessProbe": _ask(check, period_s=30, failures=1)},
        )
    ]


def _sidecars(spec: ClusterPolicySpec, pool: Pool) -> list[ContainerTemplate]:
    known = [
        ("nvidia-fs-ctr", "gds", spec.gds, "nvidia-gds-driver", "nvidia_fs"),
        ("nvidia-gdrcopy-ctr", "gdrcopy", spec.gdrcopy, "nvidia-gdrcopy-driver", "gdrdrv"),
    ]
    return [_sidecar(*each, pool) for each in known if each[2].enabled]


def _sidecar(name: str, default: str, section: Sidecar, installer: str, module: str, pool: Pool) -> ContainerTemplate:
    return container(
        name,
        reference(DEFAULTS[default], section, suffix=f"-{pool.os_id}{pool.os_version}"),
        section,
        command=["bash", "-xc"],
        args=[_INSTALL_AFTER_DRIVER.format(installer), installer, *section.args],
        env={each.name: each.value for each in section.env},
        mounts=[files.RUN_NVIDIA, files.VAR_LOG, files.DEV_LOG],
        privileged=True,
        other_fields={"startupProbe": _ask(["sh", "-c", f"lsmod | grep {module}"])},
    )


def _ask(command: list[str], *, period_s: int = 10, failures: int = 120) -> Raw:
    timing = {"initialDelaySeconds": 10, "periodSeconds": period_s, "timeoutSeconds": 10}
    return {"exec": {"command": command}, **timing, "failureThreshold": failures}


def _probe(given: Probe, default: Probe, command: list[str]) -> Raw:
    timing = {
        "initialDelaySeconds": given.initial_delay_seconds or default.initial_delay_seconds,
        "periodSeconds": given.period_seconds or default.period_seconds,
        "timeoutSeconds": given.timeout_seconds or default.timeout_seconds,
        "failureThreshold": given.failure_threshold or default.failure_threshold,
        "successThreshold": given.success_threshold or default.success_threshold,
    }
    return {"exec": {"command": command}, **{name: value for name, value in timing.items() if value}}
