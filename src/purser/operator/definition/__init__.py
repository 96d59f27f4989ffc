"""The CustomResourceDefinition of ClusterPolicy: generated from the policy's types, and kept up to date in a cluster.

- ``schemas``: structural schemas of types.
- ``crd``: the whole definition, with what types cannot say.
- ``unknown``: fields of a policy that are not in it.
- ``defining``: writes it to an API server.

Not here: the types themselves and what the operator checks of them (``policy``).
"""

from purser.operator.definition.crd import definition
from purser.operator.definition.defining import define
from purser.operator.definition.unknown import unknown_fields

__all__ = ["define", "definition", "unknown_fields"]
