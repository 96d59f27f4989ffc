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
    DocumentFormat,
    OutputFormat,
    dump,
    fail,
    terminal_width,
)
from purser.cli.read_api import SchedulerCa, SchedulerTokenFile, SchedulerUrl, read_api_of
from purser.cli.why_scheduler import print_scheduler_reasons
from purser.cli.why_text import explanation_lines, one_line
from purser.cli.why_workloads import named, resource_of, workload_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from purser.adapters.dry_runs import CreationAnswer
    from purser.adapters.manifests import ManifestPod
    from purser.adapters.objects import ClusterObjects
    from purser.adapters.workloads import ReadWorkload
    from purser.kube import Client
    from purser.scheduler.explaining import (
        Explanation,
        LogFile,
        WorkloadExplanation,
    )

HELP = """Explain why a pod waits.

The command lists each reason with the number of nodes and GPUs to which the reason applies, including the filters of
kube-scheduler, and then the smallest changes that would make the pod fit. Each change is tried with the scheduler's own
code. For a pod that is on a node, the command names what keeps the pod from running there, and compares the node's
score with the best other node. For a pod that failed, the command names who refused the pod, and what helps.

POD may also be the KIND/NAME of a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job, such as deploy/web. The
command then shows how many of the object's pods wait and explains the first one. If the object has no pods, the command
shows the object's own message. With -f, the command reads a manifest and explains what would happen to the manifest's
pod: whether the API server would create it (asked with a dry run, which stores nothing), and where it would fit.

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
        print_scheduler_reasons(api, namespace or "default", name, output)
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
        manifest_namespace = one_line(asked.namespace)
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
        print(one_line(line))
    for line in () if found.pod is None else explanation_lines(found.pod, output, terminal_width(output)):
        print(line)


def _print_notes(notes: "Iterable[str]") -> None:
    for note in notes:
        print(f"purser: {one_line(note)}", file=sys.stderr)
