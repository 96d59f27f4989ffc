"""`GET pods/<name>/log`: the checks are the server's, the lines come from the kubelet that runs the pod."""

from collections.abc import Mapping

from aiohttp import web

from . import routes
from .cluster import LogOptions, PodLogs
from .errors import Obj, StatusError, bad_request

_OTHERS = ("initContainers", "ephemeralContainers")


async def serve(request: web.Request, pod: Obj, source: PodLogs | None) -> web.StreamResponse:
    """Stream a container's log; raises 400 where the container is ambiguous, 503 where no kubelet serves logs."""
    options = _options(request.query)
    check_container(pod, options.container)
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)  # there are no logs yet; the real server returns nothing either
    if source is None:
        raise StatusError(503, "ServiceUnavailable", "the nodes of this lab do not serve logs")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    chunks = source(pod, options)
    first = await anext(chunks, b"")  # a refusal comes before the first byte, while there is a status to send
    await response.prepare(request)
    await response.write(first)
    async for chunk in chunks:
        await response.write(chunk)
    return response


def check_container(pod: Obj, container: str) -> None:
    """Raises 400 where a container is meant that is not there, or one of several is and none is named."""
    name, containers = pod["metadata"]["name"], [each["name"] for each in pod["spec"]["containers"]]
    if not container and len(containers) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]")
    others = [each["name"] for kind in _OTHERS for each in pod["spec"].get(kind) or ()]
    if container and container not in containers + others:
        raise bad_request(f"container {container} is not valid for pod {name}")


def _options(query: Mapping[str, str]) -> LogOptions:
    return LogOptions(
        container=query.get("container", ""),
        follow=routes.flag(query, "follow"),
        previous=routes.flag(query, "previous"),
        timestamps=routes.flag(query, "timestamps"),
        tail_lines=routes.number(query, "tailLines"),
        since_seconds=routes.number(query, "sinceSeconds"),
        limit_bytes=routes.number(query, "limitBytes"),
    )
