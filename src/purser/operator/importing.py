"""An existing ClusterPolicy of nvidia.com/v1, as one of Purser's, and a list of what has no counterpart.

Nothing is dropped silently: every field that is set is in the new policy, or in the list with a reason. Where the two
differ in what an absent field means, the new policy says what the old one meant.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from purser.operator.names import GROUP, KIND, VERSION
from purser.operator.policy import ClusterPolicySpec, PolicyError, decode
from purser.operator.policy.checks import problems

Raw = dict[str, Any]


class Imported(msgspec.Struct, frozen=True):
    """The new policy, and what of the old one is not in it: each a field and the reason, in one line."""

    policy: Raw
    lost: tuple[str, ...]


_UNKNOWN = "Purser has no such setting"
_REASONS = {
    "operator.defaultRuntime": "the runtime is found on each node",
    "operator.initContainer": "no operand needs one",
    "operator.use_ocp_driver_toolkit": "OpenShift's driver toolkit is not supported",
    "driver.useOpenKernelModules": "kernelModuleType says it",
    "driver.useNvidiaDriverCRD": "spec.driver.profiles has drivers for some of the nodes",
    "driver.licensingConfig.configMapName": "licences are read from a Secret: set secretName",
    "psp": "Kubernetes has no PodSecurityPolicy any more",
    "psa": "label the namespace yourself: pod-security.kubernetes.io/enforce=privileged",
    "cdi.default": "the runtime that containers get follows from cdi.enabled",
    "cdi.nriPluginEnabled": "the NRI plugin is not supported",
    "migManager.gpuClientsConfig": "services of the host are not stopped: nodes are emptied of pods only",
    "sandboxWorkloads": "virtual machines are not supported",
    "vfioManager": "virtual machines are not supported",
    "sandboxDevicePlugin": "virtual machines are not supported",
    "kataSandboxDevicePlugin": "virtual machines are not supported",
    "vgpuManager": "vGPU hosts are not supported",
    "vgpuDeviceManager": "vGPU hosts are not supported",
    "kataManager": "Kata is not supported",
    "ccManager": "confidential computing is not supported",
}
"""Why a field, or a section with all that is in it, has no counterpart."""

_OTHER_IMAGE = "Purser has a worker of its own in place of NVIDIA's MIG manager"
_NOT_THE_SAME = dict.fromkeys(
    (f"migManager.{name}" for name in ("repository", "image", "version", "args", "env")), _OTHER_IMAGE
)
"""Fields that both know, but for another program."""


def import_policy(raw: Mapping[str, Any]) -> Imported:
    """The policy of Purser that does what this one of nvidia.com/v1 did.

    Its name is taken over, and what its spec says. Raises `PolicyError` for an object that is no ClusterPolicy of
    nvidia.com/v1.
    """
    given = _spec_of(raw)
    lost: list[str] = []
    spec = _section(ClusterPolicySpec, _renamed(given), "", lost)
    _say_what_was_meant(spec, given, lost)
    policy = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": _metadata(raw), "spec": spec}
    decode(policy)
    return Imported(policy, tuple(sorted(lost)))


def _spec_of(raw: Mapping[str, Any]) -> Raw:
    if not str(raw.get("apiVersion", "")).startswith("nvidia.com/") or raw.get("kind") != KIND:
        said = f"{raw.get('apiVersion', '?')} {raw.get('kind', '?')}"
        raise PolicyError(f"this is {said}: give a ClusterPolicy of nvidia.com/v1")
    spec = raw.get("spec") or {}
    if not isinstance(spec, dict):
        raise PolicyError(f"spec is {type(spec).__name__}: give a ClusterPolicy with sections")
    return spec


def _metadata(raw: Mapping[str, Any]) -> Raw:
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return {"name": name if isinstance(name, str) and name else "cluster-policy"}


# --- names and values that are others


def _renamed(given: Raw) -> Raw:
    """With Purser's names where they differ: `upgradePolicy.podDeletion`, `useOpenKernelModules`.

    NVIDIA's operator reads the latter only in versions that know no `kernelModuleType`: beside that it is left where
    it is, as a field that nobody knows.
    """
    driver = given.get("driver")
    if not isinstance(driver, dict):
        return given
    driver = dict(driver)
    if driver.get("kernelModuleType") is None and isinstance(driver.get("useOpenKernelModules"), bool):
        driver["kernelModuleType"] = "open" if driver.pop("useOpenKernelModules") else "proprietary"
    upgrade = driver.get("upgradePolicy")
    if isinstance(upgrade, dict) and "podDeletion" in upgrade:
        upgrade = dict(upgrade)
        upgrade["gpuPodDeletion"] = upgrade.pop("podDeletion")
        driver["upgradePolicy"] = upgrade
    return {**given, "driver": driver}


def _say_what_was_meant(spec: Raw, given: Raw, lost: list[str]) -> None:
    """Where Purser's default is another one, in place."""
    spec.setdefault("devicePlugin", {})["flavor"] = "nvidia"
    spec.setdefault("dcgm", {}).setdefault("enabled", True)
    spec.setdefault("driver", {}).setdefault("upgradePolicy", {}).setdefault("autoUpgrade", False)
    spec.setdefault("mig", {}).setdefault("strategy", "none")
    _without_workload(spec, lost)
    _without_contradictions(spec, lost)


def _without_workload(spec: Raw, lost: list[str]) -> None:
    plugin = spec.get("validator", {}).get("plugin", {})
    if {"name": "WITH_WORKLOAD", "value": "true"} in plugin.get("env", []):
        lost.append(
            "spec.validator.plugin.env: the check of the device plugin starts no pod, WITH_WORKLOAD is left out"
        )
        plugin["env"] = [each for each in plugin["env"] if each["name"] != "WITH_WORKLOAD"]


def _without_contradictions(spec: Raw, lost: list[str]) -> None:
    """What NVIDIA's operator takes and Purser's refuses, because it can never be; each problem names its field."""
    while found := problems(msgspec.convert(spec, ClusterPolicySpec)):
        place = re.match(r"spec\.([A-Za-z.]+)", found[0])
        *parents, name = place[1].split(".") if place else [""]
        section: Raw = spec
        for each in parents:
            section = section.get(each, {})
        if name not in section:
            raise PolicyError(found[0])
        del section[name]
        lost.append(f"spec.{'.'.join([*parents, name])}: left out, for {found[0]}")


# --- what both know


def _section(kind: type[msgspec.Struct], given: Raw, path: str, lost: list[str]) -> Raw:
    """The fields of a section that Purser knows; the others are said to be lost."""
    known = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    found: Raw = {}
    for name, value in given.items():
        where = f"{path}.{name}" if path else name
        if value is None:
            continue
        if reason := _reason(where, name in known):
            lost.extend(f"spec.{each}: {reason}" for each in _leaves(value, where))
            continue
        kept = _value(hints[known[name]], value, where, lost)
        if kept is not None:
            found[name] = kept
    return found


def _reason(where: str, known: bool) -> str:
    """Why a field is not taken over; empty: it is."""
    return _NOT_THE_SAME.get(where, "") if known else _REASONS.get(where, _UNKNOWN)


def _value(hint: Any, value: Any, where: str, lost: list[str]) -> Any:
    """A value as Purser writes it; None where it cannot be."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
        return _section(hint, value, where, lost)
    if (kind := _struct_of_list(hint)) and isinstance(value, list):
        return _list(kind, value, where, lost)
    if _is_int_or_text(hint) and isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value)
    try:
        return msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))
    except (msgspec.ValidationError, OverflowError) as error:
        what = str(error).partition(" - at `$")[0]
        lost.extend(f"spec.{each}: {what}" for each in _leaves(value, where))
        return None


def _list(kind: type[msgspec.Struct], given: list[Any], where: str, lost: list[str]) -> list[Any]:
    """Its items, one by one. Of variables with one name the last counts, as in a container."""
    found = []
    for place, each in enumerate(given):
        at = f"{where}[{place}]"
        kept = _section(kind, each, at, lost) if isinstance(each, dict) else None
        try:
            msgspec.convert(kept, kind)
        except msgspec.ValidationError as error:
            lost.extend(f"spec.{leaf}: {error}" for leaf in _leaves(each, at))
        else:
            found.append(kept)
    if kind.__name__ != "EnvVar":
        return found
    return list({each["name"]: each for each in found if each}.values())


def _struct_of_list(hint: Any) -> type[msgspec.Struct] | None:
    arguments = get_args(hint)
    if get_origin(hint) is tuple and isinstance(arguments[0], type) and issubclass(arguments[0], msgspec.Struct):
        return arguments[0]
    return None


def _is_int_or_text(hint: Any) -> bool:
    members = [get_args(each)[0] if get_origin(each) is Annotated else each for each in get_args(hint)]
    return int in members and str in members


def _leaves(value: Any, where: str) -> Iterator[str]:
    """The places of all values in it that are set."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, f"{where}.{name}")
    elif value is not None:
        yield where
