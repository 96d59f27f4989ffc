"""The operator: a GPU stack rolled out node by node, in order, as one ClusterPolicy says.

Everything that decides is pure. An edge takes a `Snapshot` of policies, nodes, owned objects and pods (``observing``),
one function turns it into an `Outcome` (``kernel``), and another edge writes that (``acting``). Nothing is remembered
between two rounds but what stands in the API: labels and annotations of nodes, and owned objects. That is why the
operator may be killed between any two writes, and why `plan`, `--dry-run` and the tests call what production calls.

What is decided, pure:

- ``policy``: the ClusterPolicy as types, its defaults and checks; ``definition``: the CRD, generated from them.
- ``names``, ``order``, ``owned``: labels and annotations; which operand needs which; kinds of objects that are made.
  ``model``: the nouns that pass between the parts. ``merging``, ``selectors``, ``wording``: what several of them need.
- ``kernel``: the round. ``operands``: the manifests of what runs on nodes.
- ``upgrade``, ``mig``: the state machines that replace drivers and change MIG layouts, node by node; ``nodework``: what
  they share. Neither imports the other.
- ``importing``: policies of NVIDIA's operator as Purser's. ``rbac``: what the operator may do.

What is done:

- ``observing``, ``acting``: the edges to the API server. ``metrics``, ``gauges``: what is told to monitoring.
- ``running`` with its ``settings``: the process, composed; ``rounds``: one round after the other.
- ``previewing``: what a round or an upgrade would do; ``uninstall``: the way out, and what remains on it.
- ``defining``: the CRD brought up to date.

A node gets an operand by its label ``nvidia.com/gpu.deploy.<operand>``, which the kernel sets once everything that the
operand needs is ready on that very node. So nodes never wait for one another.

Not here: what runs on the node (discovery and the MIG worker are ``purser.agent``'s), which pod gets which GPU, and the
API client (``purser.kube``).
"""
