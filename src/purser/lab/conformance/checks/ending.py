"""How the plugin's process ends: on a signal, and not before."""

from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped
from purser.lab.conformance.subject import Subject
from purser.lab.kubelet.serving import SOCKET_NAME


async def _survives(subject: Subject) -> None:
    subject.started()
    if subject.endings:
        raise CheckFailed(f"it ended by itself in {'; '.join(subject.endings)}")


async def _ends(subject: Subject) -> str:
    return f"after {await subject.terminate():.1f} s, {subject.started().ended}"


async def _no_socket(subject: Subject) -> None:
    if not subject.is_over:
        raise CheckSkipped("needs process-ends, which did not run")
    folder = subject.kubelet.folder
    left = [path.name for path in folder.iterdir() if path.is_socket() and path.name != SOCKET_NAME]
    if left:
        raise CheckFailed(
            f"it left {', '.join(left)} in kubelet's folder: kubelet and its own next start may trip over it"
        )


CHECKS = (
    Check("process-survives", "Its process survived all checks.", _survives, registered=False),
    Check("process-ends", "It exits on SIGTERM in time.", _ends, registered=False),
    Check("process-leaves-no-socket", "It removes its socket.", _no_socket, ("process-ends",), registered=False),
)
