"""NodeResourceTopology objects of other exporters, in clusters that have them: for nodes whose agent reports nothing.

NFD's topology updater and the resource topology exporter write them. The resource is defined by a
CustomResourceDefinition that may be installed and removed; without it nothing is requested.
"""

import asyncio

import msgspec

from purser.kube import Client, Informer
from purser.kube.objects import ObjectMeta
from purser.kube.racing import until
from purser.kube.resources import Resource
from purser.scheduler.cache.kubelets import Kubelets, NodeResourceTopology


class Definition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition; that it is there is enough."""

    metadata: ObjectMeta = ObjectMeta()


TOPOLOGIES = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", False, NodeResourceTopology
)
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, Definition
)
DEFINITION_NAME = f"{TOPOLOGIES.plural}.{TOPOLOGIES.group}"


class Topologies:
    """Brings the objects to those who follow kubelets."""

    def __init__(self, client: Client, kubelets: Kubelets) -> None:
        self._client = client
        self._kubelets = kubelets
        self._defined, self._undefined = asyncio.Event(), asyncio.Event()
        self._definitions = Informer(client, DEFINITIONS, field_selector=f"metadata.name={DEFINITION_NAME}")
        self._definitions.add_handler(on_add=lambda _: self._set(True), on_delete=lambda _: self._set(False))

    async def run(self) -> None:
        """Follow definition and objects until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._definitions.run())
            tasks.create_task(self._follow())

    def _set(self, is_defined: bool) -> None:
        present, absent = (self._defined, self._undefined) if is_defined else (self._undefined, self._defined)
        present.set()
        absent.clear()

    async def _follow(self) -> None:
        while True:
            await self._defined.wait()
            topologies = Informer(self._client, TOPOLOGIES)
            topologies.add_handler(
                self._kubelets.put_topology,
                lambda _, topology: self._kubelets.put_topology(topology),
                self._kubelets.remove_topology,
            )
            await until(topologies.run(), self._undefined.wait())
            for topology in list(topologies.store.values()):
                with topologies.failures.guard(TOPOLOGIES, topology):
                    self._kubelets.remove_topology(topology)
