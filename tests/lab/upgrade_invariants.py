"""Looks at every event of the watch stream while the operator upgrades drivers, and writes down what must not be."""

import asyncio
from collections import Counter

from purser.kube.informer import Informer
from purser.kube.resources import NODES, PODS
from purser.lab.controllers.workloads.owned import is_ready

STATE = "nvidia.com/gpu-driver-upgrade-state"
UNDER_WAY = {
    "cordon-required",
    "wait-for-jobs-required",
    "pod-deletion-required",
    "drain-required",
    "pod-restart-required",
    "validation-required",
    "uncordon-required",
}


class UpgradeInvariants:
    """``parallel`` and ``unavailable`` are the policy's bounds, ``foreign`` the nodes that somebody else cordoned."""

    def __init__(self, client, *, parallel, unavailable, foreign, canaries, least_serving):
        self.violations = []
        self.begun = []
        """Nodes, in the order in which their upgrade began."""
        self.most = Counter()
        """How far bounds were used at most."""
        self._bounds = {"parallel": parallel, "unavailable": unavailable}
        self._foreign, self._canaries, self._least_serving = set(foreign), set(canaries), least_serving
        self._nodes = Informer(client, NODES.raw())
        self._pods = Informer(client, PODS.raw())
        self._nodes.add_handler(on_update=self._node)
        self._pods.add_handler(on_update=self._pod, on_delete=lambda pod: self._serving())
        self._tasks = []

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(each.run()) for each in (self._nodes, self._pods)]
        await self._nodes.synced()
        await self._pods.synced()
        return self

    async def __aexit__(self, *exc_info):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _node(self, old, new):
        name = new["metadata"]["name"]
        if _is_under_way(new) and not _is_under_way(old):
            self._begins(name)
        if name in self._foreign and not _is_cordoned(new):
            self.violations.append(f"the cordon of {name} was lifted")
        nodes = self._nodes.store.values()
        used = {
            "parallel": sum(_is_under_way(each) and is_ready(each) for each in nodes),
            "unavailable": sum(_is_unavailable(each) for each in nodes),
        }
        for what, count in used.items():
            self.most[what] = max(self.most[what], count)
            if count > self._bounds[what] and _is_worse(old, new):
                self.violations.append(
                    f"{count} nodes are {what} when {name} changes, at most {self._bounds[what]} may"
                )

    def _begins(self, name):
        self.begun.append(name)
        states = {each: self._nodes.store[each]["metadata"]["labels"].get(STATE) for each in self._canaries}
        if name not in self._canaries and set(states.values()) != {"upgrade-done"}:
            self.violations.append(f"{name} begins before the canaries are done: {states}")

    def _pod(self, old, new):
        is_driver = new["metadata"].get("labels", {}).get("purser.dev/operand") == "driver"
        if is_driver and new["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp"):
            self._driver_goes(new["spec"]["nodeName"])
        if is_driver and is_ready(new) and not is_ready(old):
            self._driver_is_ready(new)
        self._serving()

    def _driver_is_ready(self, new):
        """Two drivers on one node would unload one another's modules."""
        for pod in self._pods.store.values():
            is_driver = pod["metadata"].get("labels", {}).get("purser.dev/operand") == "driver"
            is_other = pod["metadata"]["uid"] != new["metadata"]["uid"]
            if is_driver and is_other and pod["spec"].get("nodeName") == new["spec"]["nodeName"]:
                self.violations.append(f"two drivers are on {new['spec']['nodeName']}")

    def _driver_goes(self, node):
        """Nothing that uses a driver may be there when it goes."""
        users = ("container-toolkit", "device-plugin", "operator-validator")
        for pod in self._pods.store.values():
            is_user = pod["metadata"].get("labels", {}).get("purser.dev/operand") in users or _is_serving(pod)
            if pod["spec"].get("nodeName") == node and is_user:
                self.violations.append(f"the driver of {node} goes under {pod['metadata']['name']}")

    def _serving(self):
        """A budget that evictions did not pay for would show here."""
        ready = sum(
            _is_serving(pod) and is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
            for pod in self._pods.store.values()
        )
        if ready < self._least_serving:
            self.violations.append(f"only {ready} pods serve, at least {self._least_serving} must")


def _is_serving(pod):
    return pod["metadata"].get("labels", {}).get("app") == "serve"


def _is_under_way(node):
    return node["metadata"]["labels"].get(STATE) in UNDER_WAY


def _is_cordoned(node):
    return bool((node.get("spec") or {}).get("unschedulable"))


def _is_unavailable(node):
    return _is_cordoned(node) or not is_ready(node) or _is_under_way(node)


def _is_worse(old, new):
    """The event took a node away: what others do to nodes is not held against the operator."""
    return (_is_unavailable(new) and not _is_unavailable(old)) or (_is_under_way(new) and not _is_under_way(old))
