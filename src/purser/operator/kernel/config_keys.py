"""The keys of ConfigMaps that drivers are told by."""

from purser.operator.model import Raw, Snapshot
from purser.operator.names import OPERAND_LABEL
from purser.operator.order import Operand


def config_keys(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """By ConfigMap. One that is away for a moment has those that live drivers have: no node changes its driver because
    somebody writes a ConfigMap by removing it first."""
    found: dict[str, tuple[str, ...]] = {}
    for obj in snapshot.daemon_sets.values():
        if (obj["metadata"].get("labels") or {}).get(OPERAND_LABEL) == Operand.DRIVER:
            found |= _mounted(obj["spec"]["template"]["spec"])
    return found | dict(snapshot.config_keys)


def _mounted(pod: Raw) -> dict[str, tuple[str, ...]]:
    """Of ConfigMaps whose keys are files of their own."""
    names = {each["name"]: each["configMap"]["name"] for each in pod.get("volumes") or () if "configMap" in each}
    keys: dict[str, set[str]] = {}
    for body in pod["containers"]:
        for mount in body.get("volumeMounts") or ():
            if mount["name"] in names and mount.get("subPath"):
                keys.setdefault(names[mount["name"]], set()).add(mount["subPath"])
    return {name: tuple(sorted(each)) for name, each in keys.items()}
