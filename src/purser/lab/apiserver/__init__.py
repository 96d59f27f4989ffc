"""The lab's Kubernetes API server: what kubectl, informers, schedulers and webhooks need of one, in one process.

It speaks the real protocol over HTTPS: discovery, CRUD with resource versions, list pages, watches with bookmarks
and 410, the four patch types with server-side apply, selectors, tables, binding, eviction, finalizers and garbage
collection, CRDs with structural schemas, admission webhooks. `ApiServer` is the whole public face; everything else
here is private to it.

Not here: other controllers (the lab has stand-ins), authorization (known tokens may do everything), service
networking, exec, aggregated discovery, protobuf, persistence. Nothing in here knows about GPUs or about Purser's
own components.
"""

from .cluster import LogOptions, PodLogs, User
from .errors import StatusError
from .server import ApiServer

__all__ = ["ApiServer", "LogOptions", "PodLogs", "StatusError", "User"]
