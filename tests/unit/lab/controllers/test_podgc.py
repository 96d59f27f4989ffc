from tests.unit.kube.servers import api_server, eventually, running

from purser.kube.informer import Informer
from purser.kube.resources import NODES, PODS
from purser.lab.controllers.workloads import podgc


async def test_a_pod_that_is_heard_of_after_its_node_went_is_collected_too(tmp_path):
    async with api_server(tmp_path / "kubeconfig", tls=False) as (_, client):
        await client.create(NODES, {"metadata": {"name": "lost"}})
        spec = {"nodeName": "lost", "containers": [{"name": "c", "image": "i"}]}
        await client.create(PODS.raw(), {"metadata": {"name": "orphan"}, "spec": spec}, "default")
        nodes, pods = Informer(client, NODES.raw()), Informer(client, PODS.raw())
        async with running(nodes.run(), podgc.run(client, nodes, pods)):
            await nodes.synced()
            await client.delete(NODES, "lost")
            await eventually(lambda: not nodes.store)
            async with running(pods.run()):
                await pods.synced()
                await eventually(lambda: not pods.store)
