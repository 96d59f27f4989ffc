"""The reference pages are what scripts/generate_reference.py makes of the code, and no name is missing."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.scripts import script
from tests.unit.core.features.test_upstream_labels import vgpu_config

import purser.core.names
import purser.operator.names
from purser.core.device.gpus import FabricIds, NodeGpu, NodeMigDevice
from purser.core.dialects import RESOURCES, policies, selectors
from purser.core.features import LabelFacts, labels_of
from purser.core.kubernetes.reasons import ExplainedReason
from purser.core.sharing import MigStrategy
from purser.operator.reasons import OperatorReason

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src/purser"
ROOMS = ("scheduler", "agent", "operator", "kube")


REFERENCE = script("generate_reference")


def test_the_pages_are_what_the_script_makes() -> None:
    pages = REFERENCE.written()
    assert len(pages) == 5
    for path, text in pages.items():
        assert (ROOT / path).read_text() == text, "run scripts/generate_reference.py"


# --- reasons


def test_every_reason_of_a_gate_is_in_the_operators_reference() -> None:
    """Those of its entry, and of how an operand that was let in is on its node."""
    page = (ROOT / "docs/operator-reference.md").read_text()
    _, _, rows = page.partition("| reason | in | meaning |\n")
    told = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows.partition("\n\n")[0].splitlines())))
    named = {
        OperatorReason[node.attr]
        for path in (SOURCE / "operator/gates").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "OperatorReason"
    }
    assert len(named) >= 9
    assert named - told == set()


def test_every_enum_of_reasons_is_on_the_page() -> None:
    assert {kind for kind, _, _ in REFERENCE.REASONS} == set(ExplainedReason.__subclasses__())


def test_a_word_is_explained_once() -> None:
    words = Counter(str(each) for kind, _, _ in REFERENCE.REASONS for each in kind)
    assert [word for word, times in words.items() if times > 1] == []


def test_every_reason_is_explained() -> None:
    reasons = [each for kind, _, _ in REFERENCE.REASONS for each in kind]
    assert len(reasons) > 100
    assert [each for each in reasons if not (each.about and each.happened)] == []


CARRIED = {
    "reason",
    "refusal.reason",
    "blocker.reason",
    "event.reason",
    "now.reason",
    "failing.reason",
    "on_node.reason",
    "reason_on_pods",
    "rollout_reason",
    "held.why",
    "error.reason",
}
"""What hands on a reason that was given elsewhere."""
PLACE = {"event": 1, "malformed": 3, "EmitEvent": 3, "node_event": None, "condition": 2, "_condition": 4, "_stopped": 2}
"""Where the calls that tell a reason have it; `event` is a recorder's where it has a message as well."""
FIRST = {"bind_failed", "BindError", "ReservationError"}
"""Calls whose first argument it is."""
BY_NAME = {"FailingNode", "OperandOnNode", "Condition"}


def told(tree: ast.AST) -> Iterator[ast.expr]:
    """What is given as a reason."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        yield from (each.value for each in call.keywords if each.arg == "reason" and name in {*PLACE, *BY_NAME})
        place = PLACE.get(name)
        if place is not None and len(call.args) > max(place, 2):
            yield call.args[place]
        if name in FIRST:
            yield call.args[0]
        if name == "partial" and ast.unparse(call.args[0]) == "event":
            yield call.args[1]


def words_told(text: str) -> list[str]:
    return [ast.unparse(each) for each in told(ast.parse(text))]


def strangers(words: list[str]) -> list[str]:
    """Those that are no member of a table."""
    members = {f"{kind.__name__}.{each.name}" for kind, _, _ in REFERENCE.REASONS for each in kind}
    return [word for word in words if word not in members | CARRIED]


def test_no_event_or_condition_has_a_reason_that_is_not_in_a_table() -> None:
    files = {path: words_told(path.read_text()) for room in ROOMS for path in (SOURCE / room).rglob("*.py")}
    assert sum(map(len, files.values())) > 50
    found = {path: strangers(words) for path, words in files.items()}
    assert {path: words for path, words in found.items() if words} == {}


def test_a_literal_would_be_found() -> None:
    assert strangers(words_told('self._events.event(about, "Granted", message)')) == ["'Granted'"]
    assert strangers(words_told('EmitEvent("Node", name, uid, f"{A}Halted", message)')) == ["f'{A}Halted'"]
    assert strangers(words_told('FailingNode(name=name, reason="Gone")')) == ["'Gone'"]
    assert strangers(words_told('raise BindError("api", message) from error')) == ["'api'"]
    assert strangers(words_told("self._events.event(about, SchedulerReason.GRANTED, message)")) == []


def decided(text: str) -> set[tuple[str, bool]]:
    """The reasons of decisions, and whether these are denials; what the scheduler alone asks is not the webhook's."""
    found = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef) and function.name != "check_not_bypassed":
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "Decision":
                    is_denied = ast.unparse(call.args[0]) == "False"
                    whys = re.findall(r"DecisionReason\.\w+", ast.unparse(call.args[1]))
                    found |= {(why, is_denied) for why in whys}
    return found


def test_the_table_says_what_the_webhook_denies() -> None:
    files = [path.read_text() for path in (SOURCE / "scheduler/webhook").glob("*.py")]
    found = set().union(*map(decided, files))
    assert len(found) > 10
    assert found <= {(f"DecisionReason.{why.name}", why.denies) for why in REFERENCE.DecisionReason}


# --- metrics


def test_every_metric_in_the_code_is_on_the_page() -> None:
    page = REFERENCE.metrics()
    text = "".join(path.read_text() for room in ROOMS for path in (SOURCE / room).rglob("*.py"))
    names = set(re.findall(r'"(purser_(?:agent|scheduler|operator|device|grant|object|loop)_[a-z_]+)"', text))
    assert len(names) > 40
    assert {name for name in names if not re.search(rf"`{name}(_total|_info)?`", page)} == set()


# --- annotations, labels, resources


def test_every_annotation_label_and_resource_in_the_code_is_on_the_page() -> None:
    listed = {row[0] for rows in REFERENCE.NAMES.values() for row in rows}
    modules = (purser.core.names, purser.operator.names)
    names = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith(("_ANNOTATION", "_LABEL", "FINALIZER")) and isinstance(value, str)
    }
    assert len(names) > 40
    others = {value for name, value in {**vars(selectors), **vars(policies)}.items() if _is_key(name, value)}
    assert len(others) > 8
    assert names | others | set(RESOURCES) <= listed


def test_every_label_of_feature_discovery_is_on_the_page() -> None:
    listed = {name for rows in REFERENCE.LABELS.values() for name, _ in rows}
    mig = NodeMigDevice(profile="1g.5gb", memory_mib=1, gi_slices=1, ci_slices=1)
    gpu = NodeGpu(model="T", memory_mib=1, compute_capability=(8, 0), fabric=FabricIds("cluster", 1))
    cut = NodeGpu(model="T", memory_mib=1, mig_enabled=True, migs=(mig,))
    made: set[str] = set()
    for gpus, strategy in (((gpu,), MigStrategy.NONE), ((cut,), MigStrategy.SINGLE), ((cut,), MigStrategy.MIXED)):
        facts = LabelFacts(
            gpus=gpus,
            mig_strategy=strategy,
            driver_version="550.54",
            cuda_version="12.4",
            pci_configs=(vgpu_config(),),
            timestamp=1,
        )
        labels, troubles = labels_of(facts)
        assert troubles == ()
        made |= {
            key.replace("mig-1g.5gb", "mig-<profile>").replace("purser.dev/T", "purser.dev/<model>") for key in labels
        }
    assert made == listed


def _is_key(name: str, value: Any) -> bool:
    return name.isupper() and isinstance(value, str) and "/" in value
