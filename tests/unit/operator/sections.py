"""The sections of a policy that are about operands, as people write them, for every operand that there is."""

from typing import Any

from purser.operator.order import Operand
from purser.operator.policy.spec import ClusterPolicySpec

_WRITTEN = dict(zip(ClusterPolicySpec.__struct_fields__, ClusterPolicySpec.__struct_encode_fields__, strict=True))
SECTIONS: dict[Operand, str] = {operand: _WRITTEN[operand.section] for operand in Operand}


def all_operands(*, enabled: bool) -> dict[str, Any]:
    """A spec in which every operand is said to be enabled, or none."""
    return {section: {"enabled": enabled} for section in SECTIONS.values()}
