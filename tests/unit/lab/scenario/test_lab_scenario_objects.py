"""Objects of a scenario: kinds that are there twice, and fields of others in a patch."""

import pytest
from tests.unit.kube.servers import api_server

from purser.kube.resources import NODES
from purser.lab.scenario.objects import filled, find_kind, resource_of
from purser.lab.scenario.spec import ScenarioError


@pytest.fixture
async def client(tmp_path):
    async with api_server(tmp_path / "k") as (_, client):
        await client.create(NODES, {"metadata": {"name": "a", "labels": {"zone": "north"}}})
        yield client


def test_two_operators_have_a_cluster_policy():
    purser = resource_of({"apiVersion": "purser.dev/v1alpha1", "kind": "ClusterPolicy"}, "here")
    nvidia = resource_of({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}, "here")
    assert (purser.group, nvidia.group) == ("purser.dev", "nvidia.com")
    assert find_kind("ClusterPolicy", "here") == purser
    assert find_kind("ClusterPolicy.nvidia.com", "here") == nvidia


def test_a_kind_that_nobody_knows_is_refused():
    with pytest.raises(ScenarioError, match=r"here: unsupported kind Nonsense: must be one of .*ClusterPolicy\.nvidia"):
        find_kind("Nonsense", "here")


async def test_a_patch_has_fields_of_other_objects(client):
    merge = {"metadata": {"labels": {"beside": "${Node a metadata.labels.zone}-b", "own": "x", "gone": None}}}
    labels = (await filled(client, merge))["metadata"]["labels"]
    assert labels == {"beside": "north-b", "own": "x", "gone": None}


async def test_a_field_that_is_not_there_is_refused(client):
    with pytest.raises(ScenarioError, match=r"Node a has no string field metadata\.labels\.none"):
        await filled(client, "${Node a metadata.labels.none}")
