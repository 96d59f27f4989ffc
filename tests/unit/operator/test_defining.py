"""A cluster's CustomResourceDefinition becomes the one of this version, whatever was there."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.typed import beside
from tests.unit.operator.embedded import Embedded, embedded

from purser.kube import KubeError, NotFoundError
from purser.operator import defining
from purser.operator.defining import define
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.policy.crd import definition

NAME = "clusterpolicies.purser.dev"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path) as found:
        yield found


def older() -> dict[str, Any]:
    """With another short name, without a field, with one that is gone by now, and with another rule."""
    found = copy.deepcopy(definition())
    found["spec"]["names"]["shortNames"] = ["cpol"]
    spec = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["devicePlugin"]
    spec["properties"]["psp"] = {"type": "object"}
    spec["x-kubernetes-validations"] = [{"rule": "true"}]
    return found


def same(live: dict[str, Any]) -> bool:
    wanted = definition()
    return live["spec"]["names"] == wanted["spec"]["names"] and live["spec"]["versions"] == wanted["spec"]["versions"]


async def test_one_that_is_not_there_is_made_and_served_at_once(cluster: Embedded) -> None:
    assert await define(cluster.client) == f"CustomResourceDefinition {NAME} created"
    assert (await cluster.client.list(CLUSTER_POLICIES)).items == []
    assert await define(cluster.client) == f"CustomResourceDefinition {NAME} unchanged"


async def test_an_older_one_is_replaced_whole_and_its_policies_stay(cluster: Embedded) -> None:
    await cluster.client.create(DEFINITIONS, older())
    await define(cluster.client)
    await cluster.client.create(CLUSTER_POLICIES, {"metadata": {"name": "gpus"}, "spec": {}})
    await cluster.client.patch_merge(DEFINITIONS, NAME, older())
    assert not same(await cluster.client.get(DEFINITIONS, NAME))

    assert await define(cluster.client) == f"CustomResourceDefinition {NAME} updated"
    assert same(await cluster.client.get(DEFINITIONS, NAME))
    assert (await cluster.client.get(CLUSTER_POLICIES, "gpus"))["metadata"]["name"] == "gpus"


async def test_labels_of_others_stay(cluster: Embedded) -> None:
    found = older()
    found["metadata"]["labels"] = {"theirs": "yes"}
    await cluster.client.create(DEFINITIONS, found)
    await define(cluster.client)
    assert (await cluster.client.get(DEFINITIONS, NAME))["metadata"]["labels"] == {"theirs": "yes"}


async def test_one_that_is_never_served_is_no_success(cluster: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defining, "CRD_SERVED_TIMEOUT_S", 0.3)
    monkeypatch.setattr(defining, "_is_established", lambda _: False)
    with pytest.raises(KubeError, match="kubectl describe crd"):
        await define(cluster.client)


async def test_the_command_prints_it_or_brings_the_clusters_up_to_date(cluster: Embedded, tmp_path: Path) -> None:
    code, out, _ = await beside("operator", "crd")
    assert (code, yaml.load(out, yaml.CSafeLoader)) == (0, definition())
    with pytest.raises(NotFoundError):
        await cluster.client.get(DEFINITIONS, NAME)
    config = cluster.server.write_kubeconfig(tmp_path / "kubeconfig")
    code, out, _ = await beside("operator", "crd", "--apply", f"--kubeconfig={config}")
    assert (code, out) == (0, f"CustomResourceDefinition {NAME} created\n")
    assert same(await cluster.client.get(DEFINITIONS, NAME))
