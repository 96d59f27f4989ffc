"""What is wrong with a ResourceQuota: the validation of the real server (ValidateResourceQuota). Pure."""

from collections.abc import Iterator

from purser.core.kubernetes.selectors import OBJECT_OPERATORS

from . import amounts, quantity
from .errors import Cause, Obj
from .names import QUALIFIED, invalid, is_qualified, required
from .quota import hard_limits, is_counted

OTHER_QUOTA_RESOURCES = (
    *("requests.storage", "resourcequotas", "services", "services.nodeports", "services.loadbalancers", "configmaps"),
    *("persistentvolumeclaims", "replicationcontrollers", "secrets"),
)
"""Lines that other objects than pods count in."""
_WHOLE = ("pods", *(name for name in OTHER_QUOTA_RESOURCES if name != "requests.storage"))
_PLAIN_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity")
_SCOPES = (*_PLAIN_SCOPES, "PriorityClass", "VolumeAttributesClass")


def check(quota: Obj) -> Iterator[Cause]:
    """What is wrong with a quota."""
    for name, amount in hard_limits(quota).items():
        where = f"spec.hard[{name}]"
        if not is_qualified(name):
            yield invalid(where, name, QUALIFIED)
        elif "/" not in name and not (name in OTHER_QUOTA_RESOURCES or is_counted(name)):
            yield invalid(where, name, "must be a standard resource for quota")
        if quantity.parse(amount) < 0:
            yield invalid(where, amount, "must be greater than or equal to 0")
        if (name in _WHOLE or amounts.is_extended(name)) and quantity.parse(amount) % 1:
            yield invalid(where, amount, "must be an integer")
    spec = quota.get("spec") or {}
    for scope in spec.get("scopes") or ():
        if scope not in _SCOPES:
            yield invalid("spec.scopes", spec["scopes"], "unsupported scope")
    for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        yield from _check_term(term, "spec.scopeSelector.matchExpressions")


def _check_term(term: Obj, where: str) -> Iterator[Cause]:
    name, operator, values = term.get("scopeName", ""), term.get("operator", ""), term.get("values") or []
    if name not in _SCOPES:
        yield invalid(f"{where}.scopeName", name, "unsupported scope")
    if name in _PLAIN_SCOPES and operator != "Exists":
        listed = "ResourceQuotaScope" + ", ResourceQuotaScope".join(_PLAIN_SCOPES[:-1])
        why = f"must be 'Exists' when scope is any of {listed} or ResourceQuotaScope{_PLAIN_SCOPES[-1]}"
        yield invalid(f"{where}.operator", operator, why)
    if operator not in OBJECT_OPERATORS:
        yield invalid(f"{where}.operator", operator, "not a valid selector operator")
    elif operator in ("In", "NotIn") and not values:
        why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
        yield required(f"{where}.values", why)
    elif operator in ("Exists", "DoesNotExist") and values:
        why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        yield invalid(f"{where}.values", values, why)
