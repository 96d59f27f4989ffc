"""A plan in lines, as `purser operator plan` prints it."""

from collections.abc import Iterator, Mapping

from purser.operator.upgrade.course import PlannedNode
from purser.operator.upgrade.plan import UpgradePlan
from purser.operator.wording import counted, natural


def plan_lines(plan: UpgradePlan) -> list[str]:
    """For people: who is under way, then wave by wave, then who is left out and why."""
    return list(_lines(plan))


def _lines(plan: UpgradePlan) -> Iterator[str]:
    yield f"target: {plan.target or 'no driver of the operator'}"
    if plan.off:
        yield "automatic upgrades are off (spec.driver.upgradePolicy.autoUpgrade): none of this happens by itself"
    for node in plan.under_way:
        yield from _node(node)
    if not plan.waves and not plan.under_way:
        yield "no node would be upgraded"
    for number, wave in enumerate(plan.waves, 1):
        yield f"wave {number}: {counted(len(wave), 'node')}"
        for node in wave:
            yield from _node(node)
    yield from _whys("skipped", plan.skipped)
    yield from _whys("waiting", plan.waiting)
    yield from _whys("no driver", plan.unmanaged)
    yield f"{counted(plan.current, 'node')} {'has' if plan.current == 1 else 'have'} the driver already"


def _node(node: PlannedNode) -> Iterator[str]:
    how = " (its pod is restarted, nobody has to leave)" if node.restart_only else ""
    begun, now = ("under way: ", f", {node.step}: {node.waits}") if node.step else ("  ", "")
    fails = f" WOULD FAIL: {node.fails}" if node.fails else ""
    yield f"{begun}{node.name}: driver {node.version}{how}{now}{fails}"
    for pod in node.pods:
        yield f"    {pod.how}: pod {pod.namespace}/{pod.name}{f' ({pod.why})' if pod.why else ''}"


def _whys(what: str, whys: Mapping[str, str]) -> Iterator[str]:
    for name, why in sorted(whys.items(), key=lambda each: natural(each[0])):
        yield f"{what}: {name}: {why}"
