"""The fleet as web pages, for `purser web` and for `purser lab`. It decides nothing and writes nothing.

- ``fleet``: the state document as tiles, and what has changed between two of them. Pure.
- ``feed``: follows a `StateSource` and keeps the newest changes for all who watch.
- ``tables``: what each page shows: rows, amounts, groups; ``rollouts``: the same for the operator's
  page, ``hardware``: of one node, ``quotas``: of those that pods wait for. Pure.
- ``history``: how GPUs were used, out of a Prometheus; ``past_use`` and ``charts``: what a page shows of that.
- ``rendering``: pages as HTML, from the templates.
- ``streaming``: changes as server-sent events.
- ``pages``: what each address answers; ``serving``: the server with headers, files and streams; ``metrics``.
- ``access``: who may see the pages: whoever is on this machine, or, in ``logins``, people with a token of their own;
  ``viewers`` has a feed for each of them.
- ``running``: the pages on a port.

Where the state comes from is `purser.top`'s business: the cluster by watches, or the scheduler's read API.
"""

from purser.web.feed import Feed
from purser.web.history import UsageHistory
from purser.web.running import serving_logins, serving_pages
from purser.web.viewers import Viewer

__all__ = ["Feed", "UsageHistory", "Viewer", "serving_logins", "serving_pages"]
