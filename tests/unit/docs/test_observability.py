"""docs/observability.md names no reason, metric or annotation that is not in the references; every page is found."""

import re
from pathlib import Path

from purser.core.names import AGENT_CONDITIONS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "observability.md").read_text()


def test_every_metric_named_is_in_the_reference() -> None:
    metrics = (DOCS / "metrics.md").read_text()
    named = set(re.findall(r"`((?:purser|gpu_operator)_[a-z]+_[a-z_]+)`", PAGE))
    assert len(named) > 3
    assert {name for name in named if f"`{name}`" not in metrics} == set()


def test_every_event_named_is_in_the_reference_or_kubernetes_own() -> None:
    reasons = (DOCS / "reasons.md").read_text()
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", PAGE))
    kubernetes = {"FailedScheduling", "PodScheduled", "UnexpectedAdmissionError", "Failed", *AGENT_CONDITIONS}
    assert "GpuUnhealthy" in named
    assert {name for name in named - kubernetes if f"`{name}`" not in reasons} == set()


def test_pages_that_the_source_names_exist() -> None:
    texts = (" ".join(path.read_text().split()) for path in (DOCS.parent / "src").rglob("*.py"))
    named = {title for text in texts for title in re.findall(r'see "([^"]+)" in the\b', text)}
    titles = [page.read_text().splitlines() for page in DOCS.rglob("*.md")]
    heads = [line.removeprefix("# ") for lines in titles for line in lines if line.startswith("# ")]
    assert named and {title for title in named if not any(head.startswith(title) for head in heads)} == set()


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(DOCS)) for page in sorted(DOCS.rglob("*.md"))]
    assert [page for page in pages if f": {page}" not in navigation] == []
