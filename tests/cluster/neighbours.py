"""Programs of other projects that run beside Purser in many clusters, with the accounts that their manifests give them.

Manifests come out of their modules, as they were released.
"""

import os
from collections.abc import Collection
from typing import Any

import pytest
import yaml

from purser.lab.controlplane.programs import ASSETS_VARIABLE

from .kubernetes import Binaries, MissingBinariesError, RealCluster
from .kubernetes.modules import source

ACCOUNTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def program(binaries: Binaries, name: str) -> str:
    """Path of a program; skips the test where programs are somebody else's, or another release's, without it."""
    try:
        return binaries.path(name)
    except MissingBinariesError as error:
        if os.environ.get("PURSER_CLUSTER") == "1" and not os.environ.get(ASSETS_VARIABLE):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def manifests(cluster: RealCluster, module: str, overlay: str, kinds: Collection[str]) -> list[dict[str, Any]]:
    """What kustomize makes of a folder of a module, of these kinds."""
    text = cluster.kubectl("kustomize", str(source(module) / overlay))
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each and each["kind"] in kinds]


def wait_established(cluster: RealCluster, definition: str) -> None:
    """Until a CustomResourceDefinition is served; `kubectl wait` ends with an error while it has no conditions."""

    def is_established() -> bool:
        conditions = cluster.get("crd", definition).get("status", {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    cluster.wait_until(f"{definition} is served", is_established)
