"""The fleet as web pages, for `purser web` and for `purser lab`. It decides nothing and writes nothing.

- ``fleet``: the state document as tiles, and what has changed between two of them. Pure.
- ``feed``: follows a `StateSource` and keeps the newest changes for all who watch.
- ``tables``: what each page shows: rows, amounts, groups. Pure.
- ``rendering``: pages as HTML, from the templates.
- ``streaming``: changes as server-sent events.
- ``serving``: the HTTP: addresses, headers, and who may ask; ``running``: a feed's pages on a port; ``metrics``.

Where the state comes from is `purser.top`'s business: the cluster by watches, or the scheduler's read API.
"""

from purser.web.feed import Feed
from purser.web.running import serving_pages

__all__ = ["Feed", "serving_pages"]
