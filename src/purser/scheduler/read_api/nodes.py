"""The document on one node, for those who may know of it.

One namespace's part has the GPUs alone that its pods hold, unless its reader may know of all nodes. No document names a
pod.
"""

from purser.core.fleet import NodeState
from purser.core.fleet.kubelet_snapshot import ReportedKubelet
from purser.core.state import details_of_gpus, node_details
from purser.recent import Recent
from purser.scheduler.cache import ClusterCache
from purser.scheduler.read_api.documents import EncodedState, encoded_state
from purser.scheduler.read_api.page import Scope

MAX_NODES = 64
"""Documents that are kept, until something of the node changes."""

_Key = tuple[str, str | None]
"""A node, and the namespace whose GPUs alone are shown; None: all are."""
_Source = tuple[NodeState, ReportedKubelet | None, frozenset[str] | None]
"""What a document is made of: the node, its kubelet's report, and the GPUs that are shown."""


class NodePage:
    """Documents are made when they are asked for: a node's takes 0.2 to 3 milliseconds."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._known: Recent[_Key, tuple[_Source, EncodedState]] = Recent(MAX_NODES)

    def of(self, name: str, scope: Scope | None = None) -> EncodedState | None:
        """A node's document for readers of one namespace's part or the whole; None: no node of that name that they may
        know of has GPUs."""
        fleet = self._cache.fleet
        node = fleet.node(name)
        if node is None:
            return None
        if scope is None or scope.has_all_nodes:
            return self._document((name, None), (node, fleet.kubelet_report(name), None))
        held = frozenset(
            uuid for grant in fleet.ledger.grants(name) if grant.namespace == scope.namespace for uuid in grant.uuids
        )
        return self._document((name, scope.namespace), (node, None, held)) if held else None

    def _document(self, key: _Key, source: _Source) -> EncodedState:
        known = self._known.get(key)
        if known is not None and _is_same_source(known[0], source):
            return known[1]
        node, report, held = source
        made = encoded_state(node_details(node, report) if held is None else details_of_gpus(node, held))
        self._known.put(key, (source, made))
        return made


def _is_same_source(one: _Source, other: _Source) -> bool:
    """Nodes and reports are others where anything in them is; comparing them takes time."""
    return one[0] is other[0] and one[1] is other[1] and one[2] == other[2]
