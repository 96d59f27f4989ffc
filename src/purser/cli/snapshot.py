"""`purser snapshot`: what decisions need of a cluster, in a file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from purser.cli.cluster_source import FromFile, objects_of_cluster, objects_of_file
from purser.cli.options import Context, Kubeconfig
from purser.cli.output import MISUSED, OutputFormat, fail, is_writable

HELP = """Write what decisions need of a cluster into a file that purser why --from and purser simulate --from read.

The file is a Kubernetes List in JSON: nodes, pods, ResourceQuotas, namespaces, volumes and their claims, Deployments,
ReplicaSets, StatefulSets and Jobs, each with the fields that a decision reads (docs/snapshot.md). It has no Secrets, no
images, no commands, no values of environment variables. With --anonymize names, labels and the ids of GPUs are replaced
by pseudonyms, and the answers are the same up to names.

It reads the cluster and writes nothing there. It needs the right to list nodes and pods; what else you may not list is
left out and named.

Exit code: 0 the file is written; 1 the cluster did not answer, or the file cannot be written; 2 wrong usage.

\b
Examples:
  purser snapshot -o cluster.json.gz
  purser snapshot --anonymize -o cluster.json
  purser snapshot --from cluster.json --anonymize > anonymized.json
"""


def snapshot(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write, compressed if its name ends with .gz. Default: standard output.",
            metavar="FILE",
        ),
    ] = None,
    anonymize: Annotated[
        bool, typer.Option("--anonymize", help="Replace names, label values and ids of GPUs by pseudonyms.")
    ] = False,
    from_: FromFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write it."""
    from purser.adapters.cluster_files import anonymized, encoded, trimmed
    from purser.cli.serving import LogLevel, configure_logs
    from purser.core.decoding import brief
    from purser.core.wording import counted
    from purser.kube.workloads import WORKLOADS

    if from_ is not None and (kubeconfig is not None or context is not None):
        fail("--from is read instead of a cluster: leave --kubeconfig and --context out", MISUSED)
    if output is not None and str(output) in [*OutputFormat]:
        fail(f"-o names the file to write, and not a format: give -o cluster.json instead of {output}", MISUSED)
    if output is not None and not is_writable(output):
        fail(f"-o {output} cannot be written: give a file in a directory that can", MISUSED)
    configure_logs(LogLevel.ERROR)
    read = objects_of_cluster(kubeconfig, context, WORKLOADS) if from_ is None else objects_of_file(from_)
    for problem in read.problems:
        print(f"purser: {brief(problem, 2000)}", file=sys.stderr)
    found = trimmed(read)
    if anonymize:
        found, _ = anonymized(found)
    data = encoded(found, compressed=output is not None and output.suffix == ".gz")
    if output is None:
        sys.stdout.write(data.decode())
        return
    try:
        output.write_bytes(data)
    except OSError as error:
        fail(f"-o {output}: {error.strerror or error}")
    what = f"{counted(len(found.nodes), 'node')} and {counted(len(found.pods), 'pod')}"
    print(f"purser: {output} has {what}", file=sys.stderr)
