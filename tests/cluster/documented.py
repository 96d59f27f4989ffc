"""The installation page as it is followed: its commands, on a cluster of this machine.

    python -m tests.cluster.documented

builds Kubernetes and the image, starts a cluster, carries out the commands of docs/install.md, runs examples/share.yaml
and prints its environment and devices. The chart is in a registry of this machine; the image would be, too, but nodes
have it already. The driver is the simulated one.
"""

import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from purser import __version__
from purser.lab.driver.compile import compiled_library

from . import image_build
from .chart_release import Release
from .helm import ROOT, registry
from .kubernetes import BUSYBOX_IMAGE, RealCluster, machine, releases
from .purser_image import REFERENCE

PAGES = [ROOT / "docs" / name for name in ("install.md", "upgrade.md")]
PUBLISH, INSTALL = "Push image and chart to your registry", "Install the chart"
"""Sections of the page."""


def commands(heading: str, address: str) -> list[str]:
    """The commands of the first block of a section of the pages, with the registry's address put in."""
    text = "\n".join(page.read_text() for page in PAGES)
    section = re.split(r"^#+ ", text.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    block = section.partition("```console\n")[2].partition("```")[0]
    found = [line.removeprefix("$ ").partition("   #")[0] for line in block.splitlines() if line.startswith("$ ")]
    assert found, f"there are no commands under {heading}"
    return [each.replace("REGISTRY", address).replace("VERSION", __version__) for each in found]


def follow(release: Release, heading: str, *options: str) -> None:
    """Carry out a section's commands; ``options`` are added where Helm installs or upgrades.

    Raises RuntimeError, LookupError.
    """
    for command in commands(heading, release.registry):
        words = shlex.split(command)
        match words:
            case ["make", "image", _]:
                continue  # who made the release has made it
            case ["docker", "push", target]:
                release.tag(target)
            case ["helm", "install" | "upgrade", *_]:
                release.helm(*words[1:], *options)
            case ["helm", *arguments]:
                release.helm(*arguments)
            case ["kubectl", *arguments]:
                release.cluster.kubectl(*arguments)
            case ["sleep", seconds]:
                time.sleep(int(seconds))
            case _:
                raise LookupError(f"{heading}: nobody knows how to follow: {command}")


def why_not() -> str | None:
    """Why the page cannot be followed on this machine, as far as it is known before all is built; None if it can."""
    try:
        release = releases.asked()
    except releases.ReleaseError as error:
        return str(error)
    if (1, releases.minor_of(release)) < releases.CRI_V1:
        return f"{releases.VARIABLE}={release}: neither kube-proxy nor CDI beside it, name a newer release"
    if compiled_library() is None:
        return "no C compiler that can build the simulated driver: on Debian 12, apt-get install gcc libc6-dev"
    return machine.why_not()


def main() -> int:
    """From nothing to one share pod; prints what its container has. Returns the exit status."""
    if reason := why_not():
        print(f"error: {reason}", file=sys.stderr)
        return 1
    if status := subprocess.run([sys.executable, "-m", "tests.cluster.kubernetes.build"], cwd=ROOT).returncode:
        return status
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        RealCluster() as cluster,
        registry(cluster.binaries, Path(name)) as address,
    ):
        folder = Path(name)
        archive = folder / "purser.oci.tar"
        with image_build.cached() as store:
            store.write(ROOT, REFERENCE, archive)
        release = Release(cluster, archive, folder, address)
        options = (*release.values, release.with_cdi, "--wait", "--timeout=3m")
        follow(release, "Pod Security")
        follow(release, PUBLISH)
        follow(release, INSTALL, *options)
        manifest = (ROOT / "examples" / "share.yaml").read_text().replace("image: busybox", f"image: {BUSYBOX_IMAGE}")
        cluster.kubectl("apply", "-f", "-", stdin=manifest)
        cluster.wait_pod("share")
        print(
            cluster.kubectl("exec", "share", "--", "sh", "-c", "env | grep -E 'NVIDIA|CUDA|PURSER'; ls -l /dev/nvidia*")
        )
        print(release.purser("get", "grants"))
        cluster.kubectl("delete", "pod", "share")
        follow(release, "Uninstall")
    return 0


if __name__ == "__main__":
    sys.exit(main())
