"""`purser why`: why a pod waits, or is where it is, or what would happen to one of a manifest."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from purser.cli.cluster_source import ask_cluster, objects_of_file
from purser.cli.options import Context, Kubeconfig, OutputOption
from purser.cli.output import (
    FAILED,
    MISUSED,
    Column,
    DocumentFormat,
    OutputFormat,
    dump,
    fail,
    table_lines,
    terminal_width,
)
from purser.cli.read_api import SchedulerCa, SchedulerTokenFile, SchedulerUrl, read_api_of
from purser.cli.why_scheduler import print_scheduler_reasons
from purser.cli.why_workloads import named, resource_of, workload_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from purser.adapters.dry_runs import CreationAnswer
    from purser.adapters.manifests import ManifestPod
    from purser.adapters.objects import ClusterObjects
    from purser.adapters.workloads import ReadWorkload
    from purser.core.explaining.grouping import ReasonCount
    from purser.kube import Client
    from purser.scheduler.explaining import (
        ChosenNode,
        Explanation,
        LogFile,
        NodeScore,
        Obstacle,
        Suggestion,
        WorkloadExplanation,
    )

HELP = """Explain why a pod waits.

The command lists each reason with the number of nodes and GPUs to which the reason applies, including the filters of
kube-scheduler, and then the smallest changes that would make the pod fit. Each change is tried with the scheduler's own
code. For a pod that is on a node, the command names what keeps the pod from running there, and compares the node's
score with the best other node. For a pod that failed, the command names who refused the pod, and what helps.

POD may also be the KIND/NAME of a Deployment, ReplicaSet, StatefulSet or Job, such as deploy/web. The command then
shows how many of the object's pods wait and explains the first one. If the object has no pods, the command shows the
object's own message. With -f, the command reads a manifest and explains what would happen to the manifest's pod:
whether the API server would create it (asked with a dry run, which stores nothing), and where it would fit.

With --scheduler, the command gets the reasons, and changes of the pod that the scheduler has tried, from the read API
of Purser's scheduler (see "Read API" in the documentation).

The command writes nothing to the cluster and only needs permission to list pods and nodes. It also works in clusters
that do not use Purser's scheduler. With --from, the command reads a file instead, written by purser snapshot -o FILE,
or by:
kubectl get nodes,pods,resourcequotas,namespaces,pvc,pv -A -o json

--from may also be a scheduler's decision log (file or folder). The command then explains the last decision on the pod,
or the last decision before --at, with the cluster as it was then. In this case, POD may also be a UID.

Exit code: 0 the explanation is shown; 1 the cluster did not answer, the pod does not exist, or the log has no decision
on the pod; 2 wrong usage, or a kubeconfig or file that cannot be used.

\b
Examples:
  purser why train-0 -n team-a
  purser why deploy/web -n team-a
  purser why -f pod.yaml
  purser why train-0 -n team-a --from cluster.json -o json
  purser why train-0 -n team-a --from /var/log/purser --at 2026-03-01T10:00:00Z
"""


def why(
    pod: Annotated[
        str,
        typer.Argument(
            metavar="[POD]", help="Pod name, or KIND/NAME. With -f: name of one of several objects in the file."
        ),
    ] = "",
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace of the pod. Default: the context's namespace; with --from or --scheduler, default.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--filename",
            "-f",
            help="Manifest with a Pod, Deployment, Job or similar that does not exist yet. Use - for standard input.",
            metavar="FILE",
        ),
    ] = None,
    scheduler: SchedulerUrl = None,
    token_file: SchedulerTokenFile = None,
    certificate_authority: SchedulerCa = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Read this instead of the cluster: output of purser snapshot or kubectl get -o json, or a decision "
            "log (file or folder).",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="With a decision log: explain the last decision before this time, such as 2026-03-01T10:00:00Z. "
            "Default: the last decision."
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the explanation."""
    kind, name = _target_of(pod, manifest)
    if (api := read_api_of(scheduler, token_file, certificate_authority, namespace or "default")) is not None:
        if from_ is not None or kubeconfig is not None or context is not None:
            fail("--scheduler cannot be used with --kubeconfig, --context or --from", MISUSED)
        if kind != "Pod" or manifest is not None:
            fail("--scheduler explains only pods: use the name of a pod, or omit --scheduler", MISUSED)
        print_scheduler_reasons(api, namespace or "default", name, output, explanation_lines)
        return
    import gc

    from purser.adapters.manifests import ManifestError
    from purser.cli.decision_logs import log_files
    from purser.cli.kernels import choose_kernels
    from purser.cli.serving import LogLevel, configure_logs
    from purser.scheduler.explaining import Explainer, UnknownPodError

    if from_ is not None and (kubeconfig is not None or context is not None):
        fail("--from cannot be used with --kubeconfig or --context", MISUSED)
    asked = None if manifest is None else _parse_query(manifest, pod and name)
    if asked is not None and namespace and asked.namespace not in ("", namespace):
        manifest_namespace = _line(asked.namespace)
        fail(
            f"-n {namespace} does not match the manifest's namespace {manifest_namespace}: omit -n, or use "
            f"-n {manifest_namespace}",
            MISUSED,
        )
    configure_logs(LogLevel.ERROR)
    choose_kernels("numpy")  # importing numba takes longer than it saves
    logs = [] if from_ is None else log_files(from_)
    if at is not None and not logs:
        fail("--at requires a decision log in --from", MISUSED)
    if logs and (kind != "Pod" or asked is not None):
        fail("a decision log contains only pods: use the name of a pod", MISUSED)
    gc.disable()  # what is made here stays until the command ends
    try:
        if logs:
            _print(_explain_logged(logs, namespace or "default", name, at), output)
            return
        about = None if asked is not None else (kind, namespace, name)
        read = (
            _read_cluster(kubeconfig, context, about, asked, namespace)
            if from_ is None
            else _ReadCluster(objects_of_file(from_))
        )
        explainer, here = Explainer(read.objects), namespace or read.namespace
        if asked is not None:
            _print(explainer.explain_new(asked, here, read.answer), output)
        elif kind == "Pod":
            _print(explainer.explain(here, name), output)
        else:
            _print_workload(explainer.explain_workload(kind, here, name, read.workload), output)
    except UnknownPodError as error:
        fail(str(error), FAILED)
    except ManifestError as error:
        fail(str(error), MISUSED)


def _target_of(pod: str, manifest: Path | None) -> tuple[str, str]:
    """Kind and name of what is to be explained."""
    if not pod and manifest is None:
        fail("a pod name, KIND/NAME, or a manifest with -f is required (see --help for examples)", MISUSED)
    try:
        return named(pod)
    except ValueError as error:
        fail(str(error), MISUSED)


def _parse_query(path: Path, name: str) -> "ManifestPod":
    """The pod of a manifest. ``name``: which one, where there are several."""
    from purser.adapters.manifests import MAX_MANIFEST_BYTES, ManifestError, manifest_pods

    is_stdin = str(path) == "-"
    try:
        with nullcontext(sys.stdin.buffer) if is_stdin else path.open("rb") as file:
            found = manifest_pods(file.read(MAX_MANIFEST_BYTES + 1), "standard input" if is_stdin else str(path))
    except OSError as error:
        fail(f"-f {path}: {error.strerror or error}", MISUSED)
    except ManifestError as error:
        fail(f"-f {error}", MISUSED)
    chosen = [each for each in found if not name or each.name == name]
    if len(chosen) != 1:
        there = ", ".join(f"{each.kind} {each.name}" for each in found[:_MAX_NAMED])
        if name and chosen:
            fail(f"-f {path} has several objects named {name}: put one of them in a file of its own", MISUSED)
        which = f"no object named {name}" if name else "several objects with pods"
        fail(f"-f {path} has {which}: POD must be the name of one of {there}", MISUSED)
    return chosen[0]


_MAX_NAMED = 8
"""Objects of a manifest in a message."""


def _explain_logged(logs: "list[LogFile]", namespace: str, pod: str, at: str | None) -> "Explanation":
    """Raises `purser.scheduler.explaining.UnknownPodError`."""
    from purser.core.decisions import DecisionLogError
    from purser.core.kubernetes.times import parsed
    from purser.scheduler.explaining import explain_from_log

    until = parsed(at)
    if at is not None and until is None:
        fail(f"invalid value {at!r} for --at: must be a time such as 2026-03-01T10:00:00Z", MISUSED)
    try:
        return explain_from_log(logs, namespace, pod, until)
    except (OSError, DecisionLogError) as error:
        fail(f"--from {error}", MISUSED)


class _ReadCluster(NamedTuple):
    objects: "ClusterObjects"
    namespace: str = "default"
    """The context's."""
    workload: "ReadWorkload | None" = None
    """None: what the objects have."""
    answer: "CreationAnswer | None" = None
    """Of the API server, on a pod that does not exist yet."""


def _read_cluster(
    kubeconfig: Path | None,
    context: str | None,
    about: tuple[str, str | None, str] | None,
    asked: "ManifestPod | None" = None,
    namespace: str | None = None,
) -> _ReadCluster:
    """``about``: kind, namespace and name of what is to be explained: what concerns it alone is read, too; ``asked``:
    of a pod that does not exist yet, its manifest, and ``namespace``: where it would be if the manifest does not say.
    """
    from purser.adapters.dry_runs import dry_run
    from purser.adapters.objects import DEVICE_CLAIM_KINDS, read_objects
    from purser.adapters.pod_events import with_warnings
    from purser.adapters.workloads import read_workload

    async def read(client: "Client") -> _ReadCluster:
        here, found = client.config.namespace, None
        also = DEVICE_CLAIM_KINDS if asked is not None and asked.names_resource_claims else ()
        objects = await read_objects(client, also)
        if asked is not None:
            answer = await dry_run(client, asked, asked.namespace or namespace or here)
            return _ReadCluster(objects, here, answer=answer)
        if about is not None:
            kind, own, name = about
            if kind != "Pod":
                found = await read_workload(client, resource_of(kind), own or here, name)
            objects = await with_warnings(client, objects, kind, own or here, name)
        return _ReadCluster(objects, here, found)

    return ask_cluster(kubeconfig, context, read)


def _print(found: "Explanation", output: OutputFormat) -> None:
    import msgspec

    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(msgspec.to_builtins(found), DocumentFormat(output.value))
        return
    _print_notes(found.notes)
    for line in explanation_lines(found, output, terminal_width(output)):
        print(line)


def _print_workload(found: "WorkloadExplanation", output: OutputFormat) -> None:
    import msgspec

    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(msgspec.to_builtins(found), DocumentFormat(output.value))
        return
    _print_notes(found.notes)
    for line in workload_lines(found):
        print(_line(line))
    for line in () if found.pod is None else explanation_lines(found.pod, output, terminal_width(output)):
        print(line)


def _print_notes(notes: "Iterable[str]") -> None:
    for note in notes:
        print(f"purser: {_line(note)}", file=sys.stderr)


def explanation_lines(
    found: "Explanation",
    output: OutputFormat = OutputFormat.TABLE,
    width: int | None = None,
    *,
    is_live: bool = False,
) -> "Iterator[str]":
    """What is printed of an explanation. ``width``: as `table_lines` takes it; ``is_live``: the scheduler itself has
    tried its changes."""
    yield _line(_summary(found))
    if found.obstacle is not None and found.obstacle.remedy:
        yield found.obstacle.remedy
    if found.fits and found.last_message and not found.objection:
        yield _line(f"Last message from scheduler {found.scheduler or 'default-scheduler'}: {found.last_message}")
        yield _OUTDATED_OR_UNCHECKED
    if without_gates := _without_gates(found):
        yield without_gates
    for line in _choice(found.choice, is_past=bool(found.at)) if found.choice is not None else ():
        yield _line(line)
    if found.reasons:
        yield ""
        yield from table_lines(found.reasons, _columns(), output, width=width)
    if found.reasons and not (found.fits or found.objection):
        yield ""
        yield _changes_text(found, is_live=is_live)
    for each in found.suggestions:
        yield _line(f"- {each.text}: {_places_text(each)}")


def _without_gates(found: "Explanation") -> str:
    """What nodes would say of a pod with scheduling gates; empty: it has none, or that is not known."""
    if found.fits_without_gates:
        some = ", ".join(found.fits_without_gates[:3])
        fitting = _fitting(found.fits_without_gates, found.nodes)
        return f"Without its gates, the pod would fit on {fitting} now ({some})."
    if found.gates and found.reasons:
        return f"Without its gates, the pod would still wait: {_fits_none(found.nodes)}."
    return ""


def _changes_text(found: "Explanation", *, is_live: bool) -> str:
    if not found.suggestions:
        if is_live:
            return _NO_LIVE_CHANGE
        return _NO_PAST_CHANGE if found.at else _NO_CHANGE
    if len(found.suggestions) == 1:
        return _ONE_PAST_CHANGE if found.at else _ONE_CHANGE
    return _PAST_CHANGES if found.at else _CHANGES


_CHANGES = (
    "Each of these changes alone makes the pod fit now, and is the smallest of its kind. Each was tried with the "
    "scheduler's own code:"
)
_ONE_CHANGE = (
    "This change makes the pod fit now, and is the smallest of its kind. It was tried with the scheduler's own code:"
)
_NO_CHANGE = "None of the changes that purser why tries makes the pod fit now."
_NO_LIVE_CHANGE = "None of the changes that the scheduler tries makes the pod fit now."
_PAST_CHANGES = (
    "Each of these changes alone would have made the pod fit, and was the smallest of its kind. Each was "
    "tried with the scheduler's own code:"
)
_ONE_PAST_CHANGE = (
    "This change would have made the pod fit, and was the smallest of its kind. It was tried with the "
    "scheduler's own code:"
)
_NO_PAST_CHANGE = "None of the changes that purser why tries would have made the pod fit."

_OUTDATED_OR_UNCHECKED = (
    'That message is out of date, or is about something that purser why does not check (see "Why a pod waits" in the '
    "documentation)."
)


def _places_text(found: "Suggestion") -> str:
    others = found.fits - len(found.examples)
    if not found.examples:
        return f"the pod then fits on {found.fits} node{'' if found.fits == 1 else 's'}"
    return f"the pod then fits on {', '.join(found.examples)}{f' and {others} more' if others else ''}"


def _summary(found: "Explanation") -> str:
    whose = f"{found.namespace}/{found.pod}"
    if found.state == "Ended":
        return _summary_of_ended(whose, found)
    if found.at:
        return _summary_of_log(whose, found)
    if found.state == "New":
        return _summary_of_new(whose, found)
    if found.state == "Placed":
        return _summary_of_placed(whose, found)
    if found.objection:
        return f"{whose} waits: {found.objection}"
    if found.fits:
        some = f"{whose} waits, and fits on {_fitting(found.fits, found.nodes)} now ({', '.join(found.fits[:3])})"
        scheduler = f"scheduler {found.scheduler or 'default-scheduler'}"
        return some if found.last_message else f"{some}: {scheduler} has not tried to place the pod yet"
    return f"{whose} waits: {_fits_none(found.nodes)}"


def _fitting(fits: tuple[str, ...], nodes: int) -> str:
    from purser.core.wording import counted

    return f"{len(fits)} of {counted(nodes, 'node')}"


def _fits_none(nodes: int) -> str:
    if not nodes:
        return "there are no nodes"
    return "it does not fit on the only node" if nodes == 1 else f"it fits on none of {nodes} nodes"


def _summary_of_placed(whose: str, found: "Explanation") -> str:
    held_by = found.obstacle
    if held_by is None:
        return f"{whose} is on node {found.node}"
    if not held_by.others_run:
        return f"{whose} is on node {found.node}, but does not run: {_obstacle(held_by)}"
    said = ": ".join(filter(None, (held_by.reason, held_by.text)))
    return f"{whose} runs on node {found.node}, but {held_by.by} does not{f': {said}' if said else ''}"


def _summary_of_ended(whose: str, found: "Explanation") -> str:
    if found.obstacle is not None:
        return f"{whose} failed{f' on node {found.node}' if found.node else ''}: {_obstacle(found.obstacle)}"
    return f"{whose} has ended{f': {found.objection}' if found.objection else ''}"


def _obstacle(found: "Obstacle") -> str:
    who = f"{found.reason} ({found.by})" if found.reason else found.by
    return f"{who}: {found.text}" if found.text else who


def _summary_of_new(whose: str, found: "Explanation") -> str:
    if found.objection:
        return f"{whose} would not be placed: {found.objection}"
    if not found.fits:
        return f"{whose} would wait: {_fits_none(found.nodes)}"
    some = ", ".join(found.fits[:3])
    scheduler = f"scheduler {found.scheduler or 'default-scheduler'}"
    return f"{whose} would fit on {_fitting(found.fits, found.nodes)} now ({some}), placed by {scheduler}"


def _summary_of_log(whose: str, found: "Explanation") -> str:
    if found.state == "Placed":
        return f"{whose} was placed on node {found.node} at {found.at}"
    if found.fits:
        names = ", ".join(found.fits[:3])
        return f"{whose} fitted on {_fitting(found.fits, found.nodes)} at {found.at} ({names}), but had no GPUs yet"
    none = "it did not fit on the only node" if found.nodes == 1 else f"it fitted on none of {found.nodes} nodes"
    return f"{whose} waited at {found.at}: {none if found.nodes else 'there were no nodes'}"


def _choice(found: "ChosenNode", *, is_past: bool) -> "Iterator[str]":
    """What it holds there, and what else there was."""
    if found.gpus:
        yield f"The pod {'got' if is_past else 'holds'} {'; '.join(found.gpus)}."
    if found.fault:
        yield f"Unhealthy: {found.fault}."
    if not found.policy:
        return
    nodes = f"{found.fits} node{'' if found.fits == 1 else 's'}"
    lead = (
        f"In the cluster as it was then, the pod would have fitted on {nodes}"
        if is_past
        else f"In the cluster as it is now without the pod, the pod would fit on {nodes}"
    )
    verb, ranks = ("was", "ranked") if is_past else ("is", "ranks")
    if found.own is None:
        others = f"{found.fits} other node{'' if found.fits == 1 else 's'}, but not its own"
        yield f"{lead.removesuffix(nodes)}{others if found.fits else 'no node, not even its own'}."
        return
    yield f"{lead}. Policy {found.policy} {ranks} the pod's node number {found.rank}: {_score(found.own)}."
    if found.runner_up is not None:
        yield f"The best other node {verb} {found.runner_up.node}: {_score(found.runner_up)}."
    if found.gpus_why:
        yield f"Reason for the choice of GPUs: {found.gpus_why}."


def _score(found: "NodeScore") -> str:
    if found.is_kept:
        return "the policy keeps the node for other pods"
    return "the policy finds too little free CPU or memory there" if found.score is None else f"score {found.score:.1f}"


def _columns() -> "list[Column[ReasonCount]]":
    return [
        Column("NODES", lambda each: each.nodes),
        Column("GPUS", lambda each: each.gpus or None),
        Column("REASON", lambda each: each.reason),
        Column("OF", lambda each: each.by),
        Column("WHAT", lambda each: each.text),
        Column("FOR EXAMPLE", lambda each: each.examples, wide=True),
    ]


def _line(text: str) -> str:
    """One line, which does not command the terminal."""
    from purser.core.decoding import brief

    return brief(text, 2000)
