"""The read API: the scheduler's state, whole or of one namespace, and the operator's rollout, as JSON over HTTPS, for
those whom the API server vouches for.

- ``access``: whose a token is and what its user may read, asked of the API server and remembered for seconds.
- ``documents``: what all documents have in common: encoded in steps, once for all who wait.
- ``page``: the documents, made in small steps beside kube-scheduler's questions, at most once a second.
- ``lists``: what they have, some at a time.
- ``nodes``: the document on one node.
- ``objects``: those on one pod, and on the events about one object.
- ``why``: that on why one pod waits.
- ``reads``: how often the API server is asked for these.
- ``rollout_page``: the document on what the operator rolls out.
- ``waiting``: requests that wait for a change of the state.
- ``tags``: which documents a client has already.
- ``serving``: paths, answers, and how much clients can make of a server. ``places``: how many at once.
  ``clients``: those that leave before.

Not here: the types of the document (`purser.core.state`), and who reads it (`purser.top`).
"""

from purser.scheduler.read_api.access import AccessControl
from purser.scheduler.read_api.nodes import NodePage
from purser.scheduler.read_api.objects import ObjectPage
from purser.scheduler.read_api.page import StatePage
from purser.scheduler.read_api.reads import SharedReads
from purser.scheduler.read_api.rollout_page import RolloutPage
from purser.scheduler.read_api.serving import READ_API_LIMITS, read_api_app
from purser.scheduler.read_api.why import WhyPage

__all__ = [
    "READ_API_LIMITS",
    "AccessControl",
    "NodePage",
    "ObjectPage",
    "RolloutPage",
    "SharedReads",
    "StatePage",
    "WhyPage",
    "read_api_app",
]
