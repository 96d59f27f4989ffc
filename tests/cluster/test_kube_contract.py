"""The client room against a real kube-apiserver: the same checks that the lab's own server passes."""

import asyncio

import pytest

from purser.kube import Client, ClusterConfig
from tests.unit.kube import contract

from .kubernetes import RealCluster


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
async def test_contract(check, cluster: RealCluster, monkeypatch):
    monkeypatch.setattr("purser.kube.client.PAGE_SIZE", 2)
    namespace = f"kube-{contract.CHECKS.index(check)}"
    await asyncio.to_thread(cluster.create_namespace, namespace)
    async with Client(ClusterConfig.load(cluster.kubeconfig)) as client:
        await check(client, namespace)
