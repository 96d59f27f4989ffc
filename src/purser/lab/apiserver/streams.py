"""`exec`, `attach` and `port-forward`: asked of a node, refused where no process runs in its containers."""

from .errors import Obj, StatusError, bad_request
from .logs import check_container

NAMES = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}
"""The subresources, and the kind that each is asked with."""
_UNSUPPORTED = {
    "exec": "cannot run a command",
    "attach": "cannot attach to a process",
    "portforward": "cannot forward a port",
}
_ALTERNATIVE = "use kubectl logs to see which devices a container would get"


def refusal(pod: Obj, subresource: str, container: str) -> StatusError:
    """Why no connection is possible: kube-apiserver's own reasons first."""
    if subresource != "portforward":
        check_container(pod, container)
    name = pod["metadata"]["name"]
    if not pod["spec"].get("nodeName"):
        return bad_request(f"pod {name} does not have a host assigned")
    return StatusError(
        501,
        "NotImplemented",
        f"{_UNSUPPORTED[subresource]} in pod {name} because the lab does not run containers: {_ALTERNATIVE}",
    )
