"""The CustomResourceDefinition of ClusterPolicy, generated from the policy's types.

- ``schemas``: structural schemas of types.
- ``crd``: the whole definition, with what types cannot say.
- ``unknown``: fields of a policy that are not in it.

Not here: the types themselves and what the operator checks of them (``policy``); writing it (``defining``).
"""

from purser.operator.definition.crd import definition
from purser.operator.definition.unknown import unknown_fields

__all__ = ["definition", "unknown_fields"]
