"""Drivers' DaemonSets that cannot make yet what the policy wants: they were refused, or are on their way."""

from collections.abc import Iterable, Mapping

from purser.operator.model import Raw, Standing, Template
from purser.operator.names import TEMPLATE_LABEL


def late_sets(standings: Iterable[Standing], live: Mapping[str, Raw]) -> frozenset[str]:
    """Names of those that are not live with the template that their pool is to have, or whose controller has not seen
    it. ``live``: DaemonSets by name."""
    wanted = {each.pool.daemon_set: each.driver_template for each in standings if each.pool is not None}
    return frozenset(name for name, template in wanted.items() if _is_late(template, live.get(name)))


def _is_late(template: Template, live: Raw | None) -> bool:
    if live is None or live["metadata"].get("deletionTimestamp"):
        return True
    is_right = (live["metadata"].get("labels") or {}).get(TEMPLATE_LABEL) == template.hash
    return not is_right or is_unseen(live)


def is_unseen(daemon_set: Raw) -> bool:
    """Whether its controller has not seen its present generation."""
    seen = (daemon_set.get("status") or {}).get("observedGeneration", 0)
    return bool(seen < daemon_set["metadata"].get("generation", 0))
