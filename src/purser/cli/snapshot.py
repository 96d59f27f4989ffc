"""`purser snapshot`: what decisions need of a cluster, in a file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from purser.cli.cluster_source import FromFile, objects_of_cluster, objects_of_file
from purser.cli.options import Context, Kubeconfig
from purser.cli.output import MISUSED, OutputFormat, fail, is_writable

HELP = """Save the cluster state that scheduling decisions need, for purser why --from and purser simulate --from.

The file is a Kubernetes List in JSON. It contains nodes, pods, ResourceQuotas, namespaces, volumes and their claims,
Deployments, ReplicaSets, StatefulSets and Jobs, and, if pods name ResourceClaims, these and DeviceClasses, each with
only the fields that decisions read (see "Take a snapshot of a cluster" in the documentation). The file does not contain
Secrets, images, commands or values of environment variables. With --anonymize, names, labels and GPU IDs are replaced
with pseudonyms, which does not change the answers except for the names.

The command only reads the cluster. It requires permission to list nodes and pods. Other objects that you are not
allowed to list are left out, and the command prints which.

Exit code: 0 the file is written; 1 the cluster did not answer, or writing the file failed; 2 wrong usage, or a
kubeconfig or file that cannot be used.

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
            help="File to write. The file is compressed if its name ends with .gz. Default: standard output.",
            metavar="FILE",
        ),
    ] = None,
    anonymize: Annotated[
        bool, typer.Option("--anonymize", help="Replace names, label values and GPU IDs with pseudonyms.")
    ] = False,
    from_: FromFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write it."""
    from purser.adapters.cluster_files import anonymize_objects, encode_objects, trim_objects
    from purser.cli.serving import LogLevel, configure_logs
    from purser.core.decoding import brief
    from purser.core.wording import counted
    from purser.kube.workloads import WORKLOADS

    if from_ is not None and (kubeconfig is not None or context is not None):
        fail("--from cannot be used with --kubeconfig or --context", MISUSED)
    if output is not None and str(output) in [*OutputFormat]:
        fail(f"-o must be the file to write, such as cluster.json, not a format such as {output}", MISUSED)
    if output is not None and not is_writable(output):
        fail(f"cannot write -o {output}: use a file in a writable folder", MISUSED)
    configure_logs(LogLevel.ERROR)
    read = objects_of_cluster(kubeconfig, context, WORKLOADS) if from_ is None else objects_of_file(from_)
    for problem in read.problems:
        print(f"purser: {brief(problem, 2000)}", file=sys.stderr)
    found = trim_objects(read)
    if anonymize:
        found, _ = anonymize_objects(found)
    data = encode_objects(found, compressed=output is not None and output.suffix == ".gz")
    if output is None:
        sys.stdout.write(data.decode())
        return
    try:
        output.write_bytes(data)
    except OSError as error:
        fail(f"-o {output}: {error.strerror or error}")
    what = f"{counted(len(found.nodes), 'node')} and {counted(len(found.pods), 'pod')}"
    print(f"purser: wrote {what} to {output}", file=sys.stderr)
