"""Settings of a new policy that have no effect as it is: sections that are off, and settings of disabled operands.

They stay in the policy, for when the operand is enabled, and are reported until then. A test checks each field against
the manifests: it changes one, or is reported here.
"""

from collections.abc import Callable, Iterator

import msgspec

from purser.operator.policy.driver import SIDECARS, DriverProfile, DriverSpec
from purser.operator.policy.importing.sections import Loss, Rank, Raw, at, leaves
from purser.operator.policy.spec import ClusterPolicySpec

_SECTIONS = ("toolkit", "devicePlugin", "gfd", "dcgm", "dcgmExporter", "nodeStatusExporter", "migManager")
_Section = DriverSpec | DriverProfile
_DRIVER_RULES: tuple[tuple[str, Callable[[_Section, bool], bool], str], ...] = (
    ("rdma.useHostMofed", lambda each, _: each.rdma is None or not each.rdma.enabled, "rdma.enabled is not true"),
    ("repoConfig", lambda _, precompiled: precompiled, "precompiled drivers do not install packages"),
    ("certConfig", lambda _, precompiled: precompiled, "precompiled drivers do not install packages"),
    ("licensingConfig.nlsEnabled", lambda each, _: not _has_licence(each), "licensingConfig does not name a Secret"),
    (
        "licensingConfig.configMapName",
        lambda each, _: each.licensing_config is not None and bool(each.licensing_config.secret_name),
        "secretName takes precedence",
    ),
)
"""Of spec.driver and of each profile: what does nothing, when, and why."""

_POLICY_RULES: tuple[tuple[str, Callable[[ClusterPolicySpec], bool], str], ...] = (
    (
        "daemonsets.rollingUpdate",
        lambda spec: spec.daemonsets.update_strategy == "OnDelete",
        "daemonsets.updateStrategy is OnDelete",
    ),
    (
        "devicePlugin.config.default",
        lambda spec: not spec.device_plugin.config.name,
        "devicePlugin.config.name is empty",
    ),
    (
        "dcgmExporter.serviceMonitor",
        lambda spec: not spec.dcgm_exporter.service_monitor.enabled,
        "dcgmExporter.serviceMonitor.enabled is not true",
    ),
    (
        "operator.metrics.serviceMonitor",
        lambda spec: not spec.operator.metrics.service_monitor.enabled,
        "operator.metrics.serviceMonitor.enabled is not true",
    ),
    (
        "dcgmExporter.hpcJobMapping.directory",
        lambda spec: not spec.dcgm_exporter.hpc_job_mapping.enabled,
        "dcgmExporter.hpcJobMapping.enabled is not true",
    ),
    *(
        (
            f"driver.upgradePolicy.{name}",
            lambda spec: not spec.driver.upgrade_policy.auto_upgrade,
            "autoUpgrade is false",
        )
        for name in ("maxParallelUpgrades", "waitForCompletion", "drain")
    ),
    (
        "driver.upgradePolicy.drain",
        lambda spec: not spec.driver.upgrade_policy.drain.enable,
        "drain.enable is not true",
    ),
    (
        "driver.upgradePolicy.waitForCompletion.timeoutSeconds",
        lambda spec: not spec.driver.upgrade_policy.wait_for_completion.pod_selector,
        "waitForCompletion.podSelector is empty",
    ),
)


def settings_without_effect(given: Raw, spec: ClusterPolicySpec) -> list[Loss]:
    """The settings of the policy ``given`` without effect; ``spec`` is the decoded policy. Settings equal to defaults
    are not reported."""
    default = _plain(ClusterPolicySpec())
    off = [*_disabled_sections(given, spec, default), *_disabled_in_profiles(given, spec, default)]
    whole = [f"spec.{name}" for name, still in off if not still]
    losses = [
        Loss(place=", ".join(whole), why="disabled: their fields take effect once they are enabled", rank=Rank.OFF)
    ] * bool(whole)
    for name, still in off:
        rest = [each for each in _given_fields(given, default, name) if still and not each.startswith(still)]
        switch = "driver" if name in SIDECARS else name
        losses.extend(Loss(place=f"spec.{each}", why=f"takes effect once {switch}.enabled is true") for each in rest)
    rules = [*((place, why) for place, holds, why in _POLICY_RULES if holds(spec)), *_of_drivers(spec)]
    silent = tuple(f"{name}." for name, _ in off)
    for place, why in rules:
        if not place.startswith(silent):
            losses.extend(Loss(place=f"spec.{each}", why=why) for each in _given_fields(given, default, place))
    return losses


def _disabled_sections(given: Raw, spec: ClusterPolicySpec, default: Raw) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Sections that are off and say more than that; with the places in each that count all the same."""
    is_on = {name: bool(_plain(spec)[name]["enabled"]) for name in ("driver", *_SECTIONS, *SIDECARS)}
    # Who is beside a driver is off with it, whatever else is said of it to others.
    is_on |= {name: is_on[name] and is_on["driver"] for name in SIDECARS}
    for name in (name for name, on in is_on.items() if not on):
        still = tuple(f"{name}.{each}" for each in _effective_fields(name, spec))
        given_fields = [
            each for each in _given_fields(given, default, name) if each != f"{name}.enabled" or each in still
        ]
        effective = [each for each in given_fields if still and each.startswith(still)]
        if len(effective) < len(given_fields):
            yield name, (f"{name}.enabled", *still) if effective else ()


def _effective_fields(name: str, spec: ClusterPolicySpec) -> tuple[str, ...]:
    """Of a section that is off."""
    if name == "driver":  # changes of MIG layouts go by them
        return ("upgradePolicy.gpuPodDeletion", "upgradePolicy.maxUnavailable")
    if name == "toolkit" and spec.mig_manager.enabled:  # the MIG worker looks for its tools there
        return ("installDir",)
    reads_configuration = spec.gfd.enabled and spec.device_plugin.config.name
    if name == "devicePlugin" and reads_configuration:  # feature discovery does, from the plugin's image
        return ("config", "repository", "image", "version")
    if (name == "gds" and spec.gds.enabled) or (name == "gdrcopy" and spec.gdrcopy.enabled):
        return ("enabled",)  # to the device plugin
    return ()


def _disabled_in_profiles(given: Raw, spec: ClusterPolicySpec, default: Raw) -> Iterator[tuple[str, tuple[str, ...]]]:
    for place, profile in enumerate(spec.driver.profiles if spec.driver.enabled else ()):
        for name, beside in (("gds", profile.gds), ("gdrcopy", profile.gdrcopy)):
            where = f"driver.profiles[{place}].{name}"
            if beside is not None and not beside.enabled and len(_given_fields(given, default, where)) > 1:
                yield where, ()


def _of_drivers(spec: ClusterPolicySpec) -> Iterator[tuple[str, str]]:
    driver = spec.driver
    sections: list[tuple[str, _Section]] = [("driver", driver)]
    sections += [(f"driver.profiles[{place}]", each) for place, each in enumerate(driver.profiles)]
    for place, section in sections:
        precompiled = driver.use_precompiled if section.use_precompiled is None else section.use_precompiled
        yield from ((f"{place}.{field}", why) for field, holds, why in _DRIVER_RULES if holds(section, precompiled))


def _has_licence(section: _Section) -> bool:
    config = section.licensing_config
    return config is not None and bool(config.secret_name or config.config_map_name)


def _given_fields(given: Raw, default: Raw, place: str) -> list[str]:
    """The places of what is given at a place or below it, and is not as it would be anyway."""
    return [each for each in leaves(at(given, place), place) if at(given, each) not in (at(default, each), {})]


def _plain(section: msgspec.Struct) -> Raw:
    found: Raw = msgspec.json.decode(msgspec.json.encode(section))
    return found
