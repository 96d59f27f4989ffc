"""PodDisruptionBudgets, for preemption: it prefers victims whom none of them protects."""

import structlog

from purser.core.kubernetes.selectors import SelectorError, of_object
from purser.core.placement.preemption import DisruptionRule
from purser.kube import Client, Informer, key_of
from purser.kube.policy_group import DisruptionBudget, budgets_resource, policy_version
from purser.kube.retrying import retry_until_accepted

log = structlog.get_logger("purser.scheduler")


class Budgets:
    """What the budgets of all namespaces allow now."""

    def __init__(self) -> None:
        self._rules: dict[str, DisruptionRule] = {}
        self._informer: Informer[DisruptionBudget] | None = None

    @property
    def rules(self) -> tuple[DisruptionRule, ...]:
        """In no particular order."""
        return tuple(self._rules.values())

    @property
    def are_known(self) -> bool:
        """Whether the cluster's budgets were read."""
        return self._informer is not None and self._informer.health.synced

    async def follow(self, client: Client) -> None:
        """Keep them fresh, until cancelled."""
        version = await retry_until_accepted(lambda: policy_version(client), "Cannot read the API server's version")
        self._informer = Informer(client, budgets_resource(version))
        self._informer.add_handler(self.put, lambda _, budget: self.put(budget), self.remove)
        await self._informer.run()

    def put(self, budget: DisruptionBudget) -> None:
        """A budget was added or changed; one with an invalid selector protects no pods, as in kube-scheduler."""
        try:
            selector = None if budget.spec.selector is None else of_object(budget.spec.selector)
        except SelectorError as error:
            log.warning(
                "A PodDisruptionBudget has an invalid selector, so preemption ignores the budget",
                budget=key_of(budget),
                error=str(error),
            )
            selector = None
        if selector is None:
            return self.remove(budget)
        status = budget.status
        self._rules[key_of(budget)] = DisruptionRule(
            budget.metadata.namespace, selector, status.disruptions_allowed, frozenset(status.disrupted_pods)
        )
        return None

    def remove(self, budget: DisruptionBudget) -> None:
        """It is gone."""
        self._rules.pop(key_of(budget), None)
