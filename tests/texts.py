"""Any text, for properties."""

from hypothesis import strategies as st

CHARACTERS = st.characters(exclude_categories=["Cs"])
"""All that UTF-8 has. By default Hypothesis finds that out by encoding each of a million: a second for a checkout."""


def any_text(min_size: int = 0, max_size: int | None = None) -> st.SearchStrategy[str]:
    """Of so many characters."""
    return st.text(CHARACTERS, min_size=min_size, max_size=max_size)
