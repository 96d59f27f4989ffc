"""How the plugin's process ends: on a signal, and not before."""

from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped
from purser.lab.conformance.subject import Subject
from purser.lab.kubelet.serving import SOCKET_NAME


async def _check_survival(subject: Subject) -> None:
    subject.started()
    if subject.endings:
        raise CheckFailed(f"the plugin exited unexpectedly during {'; '.join(subject.endings)}")


async def _check_sigterm(subject: Subject) -> str:
    return f"exited after {await subject.terminate():.1f} s: {subject.started().ended}"


async def _check_socket_removed(subject: Subject) -> None:
    if not subject.is_over:
        raise CheckSkipped("needs process-ends, which did not run")
    folder = subject.kubelet.folder
    left = [path.name for path in folder.iterdir() if path.is_socket() and path.name != SOCKET_NAME]
    if left:
        raise CheckFailed(
            f"the plugin did not remove {', '.join(left)}, which can disturb kubelet and the plugin's next start"
        )


CHECKS = (
    Check("process-survives", "The plugin's process survived all checks.", _check_survival, registered=False),
    Check("process-ends", "The plugin exits on SIGTERM in time.", _check_sigterm, registered=False),
    Check(
        "process-leaves-no-socket",
        "The plugin removes its socket when it exits.",
        _check_socket_removed,
        ("process-ends",),
        registered=False,
    ),
)
