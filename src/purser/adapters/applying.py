"""Carries out a plan for free GPUs: evicts pod by pod, and stops at the first thing that is not as planned.

The GPUs that are to be free are cordoned first and uncordoned at the end, however it ends. What a step depends on is
looked at before it, in informers' stores; each eviction names the pod's uid. Nothing is retried and no pod is deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from purser.adapters.cordoning import UnknownGpuError, cordon_gpus, uncordon_gpus
from purser.adapters.nodes import InventoryError, inventory_of
from purser.adapters.occupancy import EvictionRules, occupancy_of, unavailable_nodes
from purser.adapters.reasons import PlanReason
from purser.adapters.replacements import ReplacementError, ReplacementProgress, replacement_progress, replacements
from purser.core.node.cordons import cordoned_gpus
from purser.core.planning import MOVED_POD_PRICE, Occupancy, PlanStep, Room, RoomPlan, rehearse
from purser.core.vendors.catalogue import FAMILIES
from purser.core.wording import counted, some
from purser.kube.client import Client
from purser.kube.errors import ConflictError, KubeError, NotFoundError, TooManyRequestsError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.pods import controller_of
from purser.kube.policy_group import DisruptionBudget, budgets_resource, evict, policy_version
from purser.kube.resources import NODES, PODS, ref_of

COMPONENT = "purser-plan"
"""Who speaks in the events on evicted pods."""


class PlanStoppedError(Exception):
    """Something is not as planned; the message says what, `PlanRun.summary` what was done before."""


class PlanRun:
    """A plan being carried out, once. ``occupancy`` is the cluster as the plan was made of, ``rules`` the plan's own.

    ``step_timeout_s``: how long a budget, a pod's end and its replacement may take together, for each step. ``say`` is
    called with a line for each step.
    """

    def __init__(
        self,
        client: Client,
        occupancy: Occupancy,
        made: RoomPlan,
        rules: EvictionRules,
        *,
        step_timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._allowed = occupancy.allowed
        self._budgets = {step.uid: occupancy.pods[step.uid].budget for step in made.steps}
        self._plan = made
        self._rules = rules
        self._step_timeout_s = step_timeout_s
        self._say = say
        self._nodes = Informer(client, NODES)
        self._pods = Informer(client, PODS)
        self._changed = asyncio.Event()
        self._held: list[Room] = []
        """Rooms whose GPUs are cordoned by this run."""
        self._asked = 0
        """Of how many steps the eviction was asked for."""
        self._completed = 0

    async def run(self) -> None:
        """Returns once the rooms are free. Raises `PlanStoppedError` and `KubeError`; cancelled it stops after the
        request that is under way. In any case the cordons are taken back."""
        try:
            for room in self._plan.rooms:
                await self._cordon(room)
            version = await policy_version(self._client)
            budgets = Informer(self._client, budgets_resource(version))
            async with self._watch_cluster(budgets), EventRecorder(self._client, COMPONENT, COMPONENT) as recorder:
                for number in range(len(self._plan.steps)):
                    await self._step(number, version, budgets, recorder)
                self._check_remaining_steps(len(self._plan.steps), budgets)
        finally:
            await self._uncordon_all()

    def summary(self) -> str:
        """What was done of the steps, what was not, and which GPUs are still cordoned."""
        steps = self._plan.steps
        done = [f"{step.pod} was evicted" for step in steps[: self._completed]]
        done += [
            f"{step.pod} is being evicted, but the eviction is not complete"
            for step in steps[self._completed : self._asked]
        ]
        parts = [f"Of {counted(len(steps), 'step')}: {'; '.join(done) or 'no pod was evicted'}"]
        if left := [step.pod for step in steps[self._asked :]]:
            parts.append(f"Not evicted: {some(left, 'pod', named=10)}")
        return ". ".join([*parts, *self.left_cordoned()])

    def left_cordoned(self) -> list[str]:
        """A sentence for each room whose cordons could not be taken back."""
        return [f"GPUs on node {each.node} are still cordoned: {uncordon_command(each)}" for each in self._held]

    # --- the GPUs that are to be free

    async def _cordon(self, room: Room) -> None:
        try:
            node = await self._client.get(NODES, room.node)
            if taken := sorted({*room.uuids}.intersection(cordoned_gpus(node.metadata.annotations))):
                raise PlanStoppedError(f"GPUs on node {room.node} were cordoned by another client: {', '.join(taken)}")
            self._held.append(room)  # before the write, whose answer may be lost
            await cordon_gpus(self._client, room.node, room.uuids)
        except NotFoundError:
            self._held = [each for each in self._held if each != room]
            raise PlanStoppedError(f"node {room.node} no longer exists") from None
        except (UnknownGpuError, InventoryError) as error:
            self._held.remove(room)
            raise PlanStoppedError(str(error)) from error

    async def _uncordon_all(self) -> None:
        for room in tuple(self._held):
            try:
                await uncordon_gpus(self._client, room.node, room.uuids)
            except NotFoundError:
                pass
            except KubeError:
                continue  # it stays in the story
            self._held.remove(room)

    # --- one step

    async def _step(
        self, number: int, version: str, budgets: Informer[DisruptionBudget], recorder: EventRecorder
    ) -> None:
        step, progress = self._plan.steps[number], ReplacementProgress(False, "")

        def allows() -> bool:
            nonlocal progress
            progress = self._budget_allows(number, budgets)
            return progress.is_over

        try:
            async with asyncio.timeout(self._step_timeout_s):
                await self._wait_until(allows)
                self._check_remaining_steps(number, budgets)
                victim = self._pods.store.by_uid(step.uid)
                assert victim is not None, "Purser checked it"
                controller = controller_of(victim)
                known = frozenset(pod.metadata.uid for pod in self._pods.store.values())
                namespace, name = victim.metadata.namespace, victim.metadata.name
                progress = ReplacementProgress(False, f"the eviction of pod {step.pod} was not answered")
                self._asked = number + 1  # before the answer, which may be lost
                await self._evict(step, version, namespace, name)
                recorder.event(ref_of(PODS, victim), PlanReason.EVICTED, self._eviction_reason(step))

                def is_replaced() -> bool:
                    nonlocal progress
                    self._check_rooms()
                    pods = self._pods.store
                    found = replacements(pods.values(), controller.uid, known) if controller is not None else []
                    progress = replacement_progress(step, pods.by_uid(step.uid), found)
                    return progress.is_over

                await self._wait_until(is_replaced)
        except TimeoutError:
            raise PlanStoppedError(f"after {self._step_timeout_s:g} s, {progress.text}") from None
        except ReplacementError as error:
            raise PlanStoppedError(str(error)) from error
        self._completed = number + 1
        self._say(f"{number + 1}/{len(self._plan.steps)}: {step.pod} evicted; {progress.text}")

    def _eviction_reason(self, step: PlanStep) -> str:
        rooms = " and ".join(f"{counted(len(room.uuids), 'GPU')} on node {room.node}" for room in self._plan.rooms)
        return f"Evicted by purser plan free --apply, to free {rooms}"

    async def _evict(self, step: PlanStep, version: str, namespace: str, name: str) -> None:
        try:
            await evict(self._client, version, namespace, name, step.uid)
        except TooManyRequestsError as error:
            self._asked -= 1
            raise PlanStoppedError(f"pod {step.pod} cannot be evicted now: {error.message}") from error
        except (NotFoundError, ConflictError) as error:
            self._asked -= 1
            raise PlanStoppedError(
                f"pod {step.pod} no longer exists, or was replaced by another pod with the same name: {error.message}"
            ) from error

    # --- what is looked at

    def _budget_allows(self, number: int, budgets: Informer[DisruptionBudget]) -> ReplacementProgress:
        """A replacement counts for its budget once it is ready, which is later than it runs."""
        self._check_rooms()
        step = self._plan.steps[number]
        budget = budgets.store.get(self._budgets[step.uid])
        allows = budget is None or budget.status.disruptions_allowed > 0
        return ReplacementProgress(
            allows, f"PodDisruptionBudget {self._budgets[step.uid]} does not allow the eviction of pod {step.pod}"
        )

    def _occupancy(self, budgets: Informer[DisruptionBudget]) -> Occupancy:
        nodes, pods = list(self._nodes.store.values()), list(self._pods.store.values())
        return occupancy_of(nodes, pods, budgets.store.values(), self._rules)[0]

    def _check_remaining_steps(self, number: int, budgets: Informer[DisruptionBudget]) -> None:
        """Whether the steps that are left would be made as they were planned, decided on the cluster as it is now."""
        self._check_rooms()
        left = self._plan.steps[number:]
        # Each step's budget is asked when its turn comes: by then those who move now are ready.
        now = msgspec.structs.replace(self._occupancy(budgets), allowed=self._allowed)
        for step in left:
            pod, grant = now.pods.get(step.uid), now.fleet.ledger.grant(step.uid)
            if pod is None or grant is None:
                raise PlanStoppedError(
                    f"pod {step.pod} no longer exists, or was replaced by another pod with the same name"
                )
            if grant.node != step.node or set(now.fleet.ledger.held(step.uid)) != set(step.gpus):
                raise PlanStoppedError(f"pod {step.pod} no longer holds the devices that it held")
            if pod.stay_reason:
                raise PlanStoppedError(f"pod {step.pod} {pod.stay_reason}")
        leaving = {step.uid for step in left}
        for room in self._plan.rooms:
            for other in now.fleet.ledger.grants(room.node):
                if other.pod_uid not in leaving and set(now.fleet.ledger.held(other.pod_uid)) & set(room.uuids):
                    raise PlanStoppedError(
                        f"pod {other.namespace}/{other.pod} holds GPUs on node {room.node} that must be free"
                    )
        made = rehearse(now, self._plan.rooms, [step.uid for step in left])
        for planned, again in zip(left, made, strict=False):  # as far as budgets allow
            if again.price > planned.price:
                lost = "no longer has room" if planned.price == MOVED_POD_PRICE else "would be lost"
                raise PlanStoppedError(f"the replacement of pod {planned.pod} {lost}")
        if len(made) < len(left):
            raise PlanStoppedError("a PodDisruptionBudget does not allow the remaining steps")

    def _check_rooms(self) -> None:
        """Whether the rooms' GPUs are still there and kept free; cheap, for it is asked with every change."""
        for room in self._plan.rooms:
            node = self._nodes.store.get(room.node)
            if node is None:
                raise PlanStoppedError(f"node {room.node} no longer exists")
            if unavailable_nodes([node]):
                raise PlanStoppedError(f"node {room.node} is cordoned or not ready")
            if free := set(room.uuids).difference(cordoned_gpus(node.metadata.annotations)):
                raise PlanStoppedError(f"another client uncordoned GPUs on node {room.node}: {', '.join(sorted(free))}")
            try:
                inventory = inventory_of(node, FAMILIES)
            except InventoryError as error:
                raise PlanStoppedError(f"node {room.node}: {error}") from error
            healthy = {each.uuid for each in inventory.devices if each.healthy} if inventory is not None else set()
            if sick := set(room.uuids) - healthy:
                raise PlanStoppedError(
                    f"GPUs on node {room.node} are unhealthy or no longer exist: {', '.join(sorted(sick))}"
                )

    # --- waiting

    @asynccontextmanager
    async def _watch_cluster(self, budgets: Informer[DisruptionBudget]) -> AsyncIterator[None]:
        informers: tuple[Informer[object], ...] = (self._nodes, self._pods, budgets)  # type: ignore[assignment]
        for each in informers:
            each.add_handler(self._note, lambda _old, _new: self._changed.set(), self._note)
        tasks = [asyncio.create_task(each.run()) for each in informers]
        try:
            try:
                async with asyncio.timeout(self._step_timeout_s):
                    await asyncio.gather(*(each.synced() for each in informers))
            except TimeoutError:
                errors = [str(each.error) for each in informers if each.error is not None]
                cause = "; ".join(errors) or f"no complete list within {self._step_timeout_s:.0f} s"
                raise PlanStoppedError(f"the cluster cannot be watched: {cause}") from None
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, _object: object) -> None:
        self._changed.set()

    async def _wait_until(self, ready: Callable[[], bool]) -> None:
        while True:
            self._changed.clear()
            if ready():
                return
            await self._changed.wait()


def uncordon_command(room: Room) -> str:
    """What takes a room's cordons back by hand."""
    return f"purser uncordon gpu {room.node} {' '.join(room.uuids)}"
