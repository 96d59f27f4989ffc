"""`purser plan free`: which pods have to leave for whole GPUs of a node to be free; and has them leave."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.cluster_source import ask_cluster
from purser.cli.groups import CommandGroup
from purser.cli.options import Context, Kubeconfig, OutputOption
from purser.cli.output import MISUSED, Column, DocumentFormat, OutputFormat, dump, fail, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from purser.adapters.occupancy import EvictionRules
    from purser.core.planning import Occupancy, PlanStep, RoomPlan, RoomRequest

app = typer.Typer(
    cls=CommandGroup,
    name="plan",
    help="Plan changes to the cluster, and carry them out.\n\nExample: purser plan free --gpus 8",
    no_args_is_help=True,
    rich_markup_mode=None,
)
reading_app = typer.Typer(
    cls=CommandGroup,
    name="plan",
    help="Plan changes to the cluster.\n\nExample: kubectl purser plan free --gpus 8",
    no_args_is_help=True,
    rich_markup_mode=None,
)
"""For the plugin of kubectl, which writes nothing: plans alone."""

_PLAN_SUMMARY = """Find the cheapest evictions, in order, that free whole GPUs on one or more nodes.

Each step evicts one pod and shows where the scheduler would place its replacement. A step costs 1 if the replacement
fits elsewhere, 10 if it has to wait, and 100 if nothing recreates the pod. PodDisruptionBudgets, priorities and the
enforcement of shares are respected."""

FREE_HELP = f"""{_PLAN_SUMMARY} Without --apply, the command does not change anything.

With --apply, the command cordons the GPUs and evicts one pod at a time, after the previous pod's replacement has
started. If anything deviates from the plan, the command stops and reports what it did. At the end, the command
uncordons the GPUs.

Exit code: 0 there is a plan or the GPUs are already free, or --apply freed them; 1 there is no plan, the cluster did
not answer, or --apply stopped early; 2 wrong usage, or a kubeconfig that cannot be used.

Example: purser plan free --gpus 8

Example: purser plan free --gpus 8 --apply

Example: purser plan free --gpus 4 --nodes 2 --max-priority 1000 -o json
"""


READING_HELP = f"""{_PLAN_SUMMARY} The command does not change anything. To carry out a plan, use
purser plan free --apply.

Exit code: 0 there is a plan, or the GPUs are already free; 1 there is no plan, or the cluster did not answer; 2 wrong
usage, or a kubeconfig that cannot be used.

Example: kubectl purser plan free --gpus 8
"""

Gpus = Annotated[int, typer.Option(min=1, help="Number of whole GPUs to free on each node.")]
Nodes = Annotated[int, typer.Option(min=1, help="Number of nodes.")]
MaxPriority = Annotated[int, typer.Option(help="Do not evict pods whose priority is higher than this.")]
Force = Annotated[bool, typer.Option("--force", help="Also evict pods that no controller recreates.")]


@app.callback()
@reading_app.callback()
def group() -> None:
    """Has a group of one command stay a group."""


@reading_app.command("free", help=READING_HELP)
def free_on_paper(
    gpus: Gpus,
    nodes: Nodes = 1,
    max_priority: MaxPriority = 0,
    force: Force = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print a plan."""
    from purser.adapters.occupancy import EvictionRules
    from purser.core.planning import RoomRequest

    _shown_plan(RoomRequest(gpus, nodes), EvictionRules(max_priority, force), kubeconfig, context, output)


@app.command("free", help=FREE_HELP)
def free(
    gpus: Gpus,
    nodes: Nodes = 1,
    max_priority: MaxPriority = 0,
    force: Force = False,
    apply: Annotated[bool, typer.Option("--apply", help="Carry out the plan.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --apply: do not ask for confirmation.")] = False,
    step_timeout: Annotated[
        float,
        typer.Option(min=1, help="With --apply: seconds to wait for a pod to stop and for its replacement to run."),
    ] = 300.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print a plan, or carry it out."""
    from purser.adapters.occupancy import EvictionRules
    from purser.core.planning import RoomRequest

    wish, rules = RoomRequest(gpus, nodes), EvictionRules(max_priority, force)
    if yes and not apply:
        fail("--yes requires --apply", MISUSED)
    if apply and not (yes or sys.stdin.isatty()):
        fail("--apply asks for confirmation, but there is no terminal: use --yes", MISUSED)
    occupancy, made = _shown_plan(wish, rules, kubeconfig, context, output)
    if not apply or not made.steps:
        return
    if not yes and not typer.confirm(_question(made), err=True):
        fail("nothing was changed")
    _apply(occupancy, made, rules, step_timeout, kubeconfig, context, output)


def _shown_plan(
    wish: "RoomRequest", rules: "EvictionRules", kubeconfig: "Path | None", context: str | None, output: OutputFormat
) -> "tuple[Occupancy, RoomPlan]":
    """What was printed; ends the command where there is no plan."""
    from purser.core.planning import plan

    occupancy = _read(kubeconfig, context, rules)
    made = plan(occupancy, wish)
    if made is None:
        fail(why_no_plan(occupancy, wish))
    _show(occupancy, made, least_known(occupancy, wish, made), output)
    return occupancy, made


def least_known(occupancy: "Occupancy", wish: "RoomRequest", made: "RoomPlan") -> int | None:
    """What no plan costs less than; None: not known."""
    from purser.core.planning import NoBoundError, least_cost

    try:
        return least_cost(occupancy, wish, made.cost)
    except NoBoundError:
        return made.cost if made.is_cheapest else None


def _question(made: "RoomPlan") -> str:
    from purser.core.planning import MOVED_POD_PRICE
    from purser.core.wording import counted

    unplaced = sum(step.price != MOVED_POD_PRICE for step in made.steps)
    without = f", {unplaced} of which cannot be placed elsewhere" if unplaced else ""
    return f"Evict {counted(len(made.steps), 'pod')}{without}?"


def _apply(
    occupancy: "Occupancy",
    made: "RoomPlan",
    rules: "EvictionRules",
    step_timeout_s: float,
    kubeconfig: "Path | None",
    context: str | None,
    output: OutputFormat,
) -> None:
    """Carry it out; ends the command where it stops."""
    import asyncio

    from purser.adapters.applying import PlanRun, PlanStoppedError, uncordon_command
    from purser.cli.serving import serve
    from purser.kube import Client, ClusterConfig, KubeError
    from purser.kube.racing import until

    def say(line: str) -> None:
        print(line, file=sys.stdout if output in (OutputFormat.TABLE, OutputFormat.WIDE) else sys.stderr, flush=True)

    async def carry_out(run: PlanRun) -> bool:
        await run.run()
        return True

    async def main(stop: asyncio.Event) -> None:
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            run = PlanRun(client, occupancy, made, rules, step_timeout_s=step_timeout_s, say=say)
            try:
                is_done = await until(carry_out(run), stop.wait())
            except (PlanStoppedError, KubeError) as error:
                fail(f"stopped: {error}. {run.summary()}")
            if not is_done:
                fail(f"interrupted. {run.summary()}")
            if run.left_cordoned():
                fail(". ".join(run.left_cordoned()))

    for room in made.rooms:
        what = "GPU stays" if len(room.uuids) == 1 else "GPUs stay"
        how = f"If purser is killed, run: {uncordon_command(room)}"
        say(f"Node {room.node}: the {what} cordoned until the plan is finished. {how}")
    serve(main)
    count = sum(len(room.uuids) for room in made.rooms)
    say(f"The {'GPU is' if count == 1 else 'GPUs are'} free and open to new pods again")


def _read(kubeconfig: "Path | None", context: str | None, rules: "EvictionRules") -> "Occupancy":
    """What the API server answers; ends the command where it does not."""
    from purser.adapters.occupancy import read_occupancy
    from purser.cli.serving import LogLevel, configure_logs

    configure_logs(LogLevel.WARNING)
    occupancy, problems = ask_cluster(kubeconfig, context, lambda client: read_occupancy(client, rules))
    for problem in problems:
        print(f"purser: {problem}", file=sys.stderr)
    return occupancy


_USABLE_NOTE = (
    "GPUs that are unhealthy, cordoned, disputed, in MIG mode or shared by time-slicing are ignored,"
    " and so are nodes that are cordoned or not ready"
)


def why_no_plan(occupancy: "Occupancy", wish: "RoomRequest") -> str:
    """Why no node has room, or can have it, in a sentence."""
    from purser.core.planning import usable_gpus
    from purser.core.wording import counted, some

    usable = usable_gpus(occupancy)
    enough = sum(here >= wish.gpus for here in usable.values())
    asked = counted(wish.gpus, "usable GPU")
    if not enough:
        most = max(usable, key=lambda name: usable[name], default="")
        there = f" (most: {usable[most]} on node {most})" if usable.get(most) else ""
        return f"no schedulable node has {asked}{there}: {_USABLE_NOTE}"
    if enough < wish.nodes:
        have = "has" if enough == 1 else "have"
        few = f"only {enough}" if enough < len(usable) else str(enough)
        there = f"{few} of {counted(len(usable), 'schedulable node')} {have} at least {asked}"
        return f"{there}, but you asked for {counted(wish.nodes, 'node')}: {_USABLE_NOTE}"
    staying = sorted(f"{pod.request.key} {pod.stay_reason}" for pod in occupancy.pods.values() if pod.stay_reason)
    where = counted(wish.nodes, "node")
    problem = f"{counted(wish.gpus, 'GPU')} on {where} cannot be freed"
    if not staying:
        return f"{problem}: PodDisruptionBudgets do not allow the evictions"
    return f"{problem} without evicting pods that must stay: {some(staying, 'pod')}"


def _show(occupancy: "Occupancy", made: "RoomPlan", least: int | None, output: OutputFormat) -> None:
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(plan_document(made, least), DocumentFormat(output.value))
        return
    if made.steps:
        print_table(list(enumerate(made.steps, 1)), _columns(occupancy), output)
    for room in made.rooms:
        gpus = ", ".join(_indices(occupancy, room.node, room.uuids))
        what = "GPU" if len(room.uuids) == 1 else "GPUs"
        print(f"{'Then free' if made.steps else 'Free now'}: {what} {gpus} on node {room.node}")
    if made.steps:
        bound = "the lowest possible cost is unknown" if least is None else f"no plan costs less than {least}"
        print(f"Cost: {made.cost}; {bound}")


def _columns(occupancy: "Occupancy") -> "list[Column[tuple[int, PlanStep]]]":
    return [
        Column("STEP", lambda row: row[0]),
        Column("POD", lambda row: row[1].pod),
        Column("NODE", lambda row: row[1].node),
        Column("GPUS", lambda row: _indices(occupancy, row[1].node, row[1].gpus)),
        Column("THEN", lambda row: _replacement_outcome(row[1])),
        Column("TO GPUS", lambda row: _indices(occupancy, row[1].to, row[1].to_gpus)),
        Column("COST", lambda row: row[1].price),
    ]


def _replacement_outcome(step: "PlanStep") -> str:
    if step.to:
        return f"to node {step.to}"
    return "waits" if step.returns else "lost"


def _indices(occupancy: "Occupancy", name: str, uuids: tuple[str, ...]) -> list[str]:
    node = occupancy.fleet.node(name)
    known = {} if node is None else {state.device.uuid: str(state.device.index) for state in node.devices}
    return [known.get(uuid, uuid) for uuid in uuids]


def plan_document(made: "RoomPlan", least: int | None) -> dict[str, Any]:
    """A plan as ``-o json`` prints it; ``least``: no plan costs less, None where that is not known."""
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(made)
    return {"cost": made.cost, "least_cost": least, **found}
