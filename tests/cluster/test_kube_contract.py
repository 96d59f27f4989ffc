"""The client room against a real kube-apiserver: the same checks that the lab's own server passes."""

import asyncio
from dataclasses import replace

import pytest

from purser.adapters.dry_runs import dry_run
from purser.adapters.manifests import ManifestPod
from purser.kube import Client, ClusterConfig
from purser.kube.login import Source, StoredLogin
from tests.unit.kube import contract

from .kubernetes import RealCluster


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
async def test_contract(check, cluster: RealCluster, monkeypatch):
    monkeypatch.setattr("purser.kube.client.PAGE_SIZE", 2)
    namespace = f"kube-{contract.CHECKS.index(check)}"
    await asyncio.to_thread(cluster.create_namespace, namespace)
    async with Client(ClusterConfig.load(cluster.kubeconfig)) as client:
        await check(client, namespace)


async def test_who_may_not_create_pods_is_told_that_it_is_not_known(cluster: RealCluster):
    def viewer() -> str:
        cluster.create_namespace("viewers")
        cluster.kubectl("create", "serviceaccount", "viewer", "-nviewers")
        cluster.kubectl(
            "create", "rolebinding", "viewer", "-nviewers", "--clusterrole=view", "--serviceaccount=viewers:viewer"
        )
        return cluster.kubectl("create", "token", "viewer", "-nviewers").strip()

    token = await asyncio.to_thread(viewer)
    config = ClusterConfig.load(cluster.kubeconfig)
    asked = ManifestPod("Pod", "viewers", "p", {"metadata": {"name": "p"}, "spec": {"containers": []}})
    async with Client(replace(config, login=StoredLogin(Source("the test", token.encode())))) as client:
        answer = await dry_run(client, asked, "viewers")
    assert (answer.pod, answer.refusal) == (None, "")
    assert 'cannot create resource "pods" in API group "" in the namespace "viewers"' in answer.unknown
