"""What is the same of every driver section of NVIDIA's operator: the ClusterPolicy's, and an NVIDIADriver's spec."""

from purser.operator.importing.sections import Raw

_RENAMED = {
    ("upgradePolicy", "podDeletion"): ("upgradePolicy", "gpuPodDeletion"),
    ("repoConfig", "name"): ("repoConfig", "configMapName"),
    ("licensingConfig", "name"): ("licensingConfig", "configMapName"),
    ("virtualTopologyConfig", "name"): ("virtualTopology", "config"),
}
"""Fields, by part and name, that Purser calls otherwise."""

NOT_TAKEN = {
    "useOpenKernelModules": "kernelModuleType says it",
}
"""Fields without counterpart and why, by the names that Purser would have for them."""


def with_new_names(driver: Raw) -> Raw:
    """The section with Purser's names. One that is there under its new name, too, is left as it is: nobody knows it."""
    found: Raw = {name: dict(value) if isinstance(value, dict) else value for name, value in driver.items()}
    for (part, name), (new_part, new_name) in _RENAMED.items():
        old = found.get(part)
        if isinstance(old, dict) and name in old:
            new = found.setdefault(new_part, {})
            if isinstance(new, dict) and new_name not in new:
                new[new_name] = old.pop(name)
        if old == {} and new_part != part:
            del found[part]
    return found
