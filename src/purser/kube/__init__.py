"""The Kubernetes API: the only room that talks to an API server.

Here: how to reach a server and log in (``config``), the verbs (``client``), what is read of its objects (``objects``,
``resources``), local copies that stay fresh (``informer``), and the tools controllers are made of: a work queue, leader
election and event recording.

Not here: anything about GPUs (`purser.adapters` makes the kernel's nouns of API objects), and any server: webhook and
extender are the scheduler's, the lab has its own API server. Kubernetes' objects are read as slim frozen Structs and
written as dicts, never the other way round.
"""

from purser.kube.client import Client, ObjectList
from purser.kube.clock import Clock, SystemClock
from purser.kube.config import ClusterConfig
from purser.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ApiUnavailableError,
    BadRequestError,
    ConfigError,
    ConflictError,
    DecodeError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    NotFoundError,
    ServerError,
    TlsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer, InformerHealth
from purser.kube.leases import LeaderElector, LeaseFollower
from purser.kube.resources import Raw, Resource, key_of, meta_of, ref_of, untyped_resource
from purser.kube.watching import Bookmark, Change, ChangeType
from purser.kube.workqueue import QueueClosed, WorkQueue, run_workers

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "ApiUnavailableError",
    "BadRequestError",
    "Bookmark",
    "Change",
    "ChangeType",
    "Client",
    "Clock",
    "ClusterConfig",
    "ConfigError",
    "ConflictError",
    "DecodeError",
    "EventRecorder",
    "ForbiddenError",
    "GoneError",
    "Informer",
    "InformerHealth",
    "InvalidError",
    "KubeError",
    "LeaderElector",
    "LeaseFollower",
    "NotFoundError",
    "ObjectList",
    "QueueClosed",
    "Raw",
    "Resource",
    "ServerError",
    "SystemClock",
    "TlsError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "WorkQueue",
    "key_of",
    "meta_of",
    "ref_of",
    "run_workers",
    "untyped_resource",
]
