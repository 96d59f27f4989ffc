"""What the emulated kubelet writes into its Node."""

from purser.kube.clock import SystemClock
from purser.kube.errors import AlreadyExistsError
from purser.kube.objects import Node, NodeStatus
from purser.lab.kubelet.node import NodeReporter, NodeSettings


class Api:
    """A Node that has some capacity; remembers what is written into its status."""

    def __init__(self, capacity):
        self.node = Node(status=NodeStatus(capacity=capacity))
        self.written = None

    async def create(self, resource, body):
        pass

    async def get(self, resource, name):
        return self.node

    async def patch_merge(self, resource, name, body, subresource):
        self.written = body["status"]


async def test_all_is_offered_of_a_resource_that_kubelet_does_not_know(node):
    api = Api({"example.com/dongle": "3", "cpu": "999"})
    reporter = NodeReporter(NodeSettings("n"), api, node.books, SystemClock())
    await reporter.register(reset_extended_resources=False)
    assert api.written["allocatable"]["example.com/dongle"] == "3"
    assert "example.com/dongle" not in api.written["capacity"]
    assert api.written["allocatable"]["cpu"] != "999"


async def test_a_kubelet_without_a_checkpoint_zeroes_extended_resources_once(node):
    """Its Node is another machine's by now, and whoever listed what there was says so again (seen on 1.36.3)."""

    class There(Api):
        async def create(self, resource, body):
            raise AlreadyExistsError(409, "AlreadyExists", "there")

        async def patch_merge(self, resource, name, body, subresource):
            await super().patch_merge(resource, name, body, subresource)
            self.node = Node(status=NodeStatus(capacity={**self.node.status.capacity, **self.written["capacity"]}))

    api = There({"example.com/dongle": "3", "cpu": "999"})
    reporter = NodeReporter(NodeSettings("n"), api, node.books, SystemClock())
    await reporter.register(reset_extended_resources=True)
    assert api.node.status.capacity["example.com/dongle"] == api.written["allocatable"]["example.com/dongle"] == "0"
    assert "example.com/dongle" not in api.written["capacity"]
