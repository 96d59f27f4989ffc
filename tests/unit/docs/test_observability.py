"""docs/observability.md against the code: every metric and every event reason is there, and nothing that is not."""

import re
from pathlib import Path

from purser.agent.refusals import RefusalReason
from purser.core.names import DISPUTES_ANNOTATION, INVENTORY_ANNOTATION, ROOM_ANNOTATION
from purser.kube.failures import FAILED, UNREADABLE, UNTRUSTED

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "observability.md").read_text()
CODE = {
    path: path.read_text()
    for path in sorted((ROOT / "src" / "purser").rglob("*.py"))
    if not {"lab", "simulator"} & set(path.relative_to(ROOT / "src" / "purser").parts)
}


def base(metric: str) -> str:
    """Clients end counters with _total, and build facts with _info."""
    return metric.removesuffix("_total").removesuffix("_info")


def test_every_metric_is_documented_and_no_other():
    in_code = {base(name) for text in CODE.values() for name in re.findall(r'"(purser_[a-z]+_[a-z_]+)"', text)}
    in_page = {base(name) for name in re.findall(r"`(purser_[a-z]+_[a-z_]+)`", PAGE)}
    assert in_page == in_code


def test_every_reason_of_an_event_is_documented():
    constants = r'^(?:[A-Z_]*REASON|ENFORCEMENT_CHANGED) = "([A-Z][A-Za-z]+)"$'
    literals = r'\.event\((?:[^",()]|\([^()]*\))*, "([A-Z][A-Za-z]+)"'
    reasons = {
        reason
        for path, text in CODE.items()
        for reason in (*re.findall(constants, text, re.MULTILINE), *re.findall(literals, text))
    }
    assert {"Granted", "GpuUnhealthy", "Preempting", "EnforcementChanged"} <= reasons
    reasons |= {reason.value for reason in RefusalReason} | {FAILED, UNREADABLE, UNTRUSTED}
    assert {reason for reason in reasons if f"`{reason}`" not in PAGE} == set()


def test_annotations_on_pods_and_nodes_are_documented():
    assert all(f"`{name}`" in PAGE for name in (DISPUTES_ANNOTATION, INVENTORY_ANNOTATION, ROOM_ANNOTATION))


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f": {page.name}" not in navigation] == []
