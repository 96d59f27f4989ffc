"""The operator: a GPU stack rolled out node by node, in order, as one ClusterPolicy says.

Everything that decides is pure. An edge takes a `Snapshot` of policies, nodes, owned objects and pods (``observing``),
one function turns it into a `RoundOutcome` (``deciding``), and another edge writes that (``writing``). Nothing is
remembered between two rounds but what stands in the API: labels and annotations of nodes, and owned objects. That is
why the operator may be killed between any two writes, and why `plan`, `--dry-run` and the tests call what production
calls.

Four rooms, each with its entrance in its ``__init__``, where its states are drawn:

- ``gates``: which operand a node gets now: what a node is, where it belongs, how far its operands are.
- ``upgrade``: replaces drivers node by node, within bounds.
- ``mig``: changes MIG layouts node by node, within the same bounds.
- ``manifests``: the objects that run it all, and whether they have to be applied.

Around them:

- ``policy``: the ClusterPolicy as types, its defaults, checks and CRD, and which of several is active;
  ``policy.importing``: policies of NVIDIA's operator as Purser's.
- ``names``, ``order``: labels and annotations; which operand needs which. ``model``: the nouns between the rooms.
  ``maintenance``: what upgrades and MIG changes share.
- ``deciding``: the round, which asks the rooms and puts their answers together.
- ``observing``, ``writing``: the edges to the API server; ``acting``: all actions of a round, written or only shown.
  ``metrics``: what is exposed to Prometheus.
- ``running`` with its ``settings``: the process, composed, and one round after the other.
- ``previewing``: what a round, an upgrade or uninstalling would do; ``uninstalling``: the way out; ``chart_hooks``: the
  CRD brought up to date, and what agents wrote removed.

A node gets an operand by its label ``nvidia.com/gpu.deploy.<operand>``, which is set once everything that the operand
needs is ready on that very node. So nodes never wait for one another.

Not here: what runs on the node (discovery and the MIG worker are ``purser.agent``'s), which pod gets which GPU, and the
API client (``purser.kube``).
"""
