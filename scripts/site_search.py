"""A hook of mkdocs: what readers look for comes first in the site's search.

Not as front matter of the pages, which GitHub would show.
"""

from typing import Any

BOOSTS = {"how-do-i.md": 4.0}
"""By page; 1 for all others but these."""
LESS = ("migrating/", "architecture.md", "benchmarks.md", "correctness.md", "decisions.md")
"""Pages that have most words in them, and the answer to few questions."""
LESS_BOOST = 0.5


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs hands over each page before the search reads its metadata."""
    path = page.file.src_uri
    boost = BOOSTS.get(path, LESS_BOOST if path.startswith(LESS) else 1.0)
    page.meta.setdefault("search", {"boost": boost})
    return markdown
