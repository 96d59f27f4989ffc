"""What of the kit needs no plugin: its catalogue, settings, reports."""

import re
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
from tests.unit.core.kubelet.devicemanager.test_registration import EXTENDED, OTHERS

from purser.core.kubelet.devicemanager.registration import is_extended_resource
from purser.lab.conformance import CATALOGUE, Check, CheckOutcome, CheckVerdict, PodName, Report, Settings, select
from purser.lab.conformance.check import one_line
from purser.lab.conformance.checks.registration import reason_without_resource
from purser.lab.conformance.junit import write


def test_every_check_has_an_id_of_its_own_and_needs_only_earlier_ones():
    seen = set()
    for check in CATALOGUE:
        assert check.id not in seen
        assert set(check.needs) <= seen, check.id
        assert check.sentence, check.id
        seen.add(check.id)


def test_checks_are_chosen_by_patterns_in_their_own_order():
    assert [check.id for check in select(["preferred-s*", "list"])] == ["list", "preferred-size", "preferred-several"]
    assert "list" not in [check.id for check in select(skip=["list*"])]
    assert select() == CATALOGUE


@pytest.mark.parametrize(
    ("only", "skip", "says"),
    [
        (["listing"], [], "no check matches listing"),
        ([], ["x*"], "no check matches"),
        (["list"], ["l*"], "no checks are left"),
    ],
)
def test_patterns_that_choose_nothing_are_refused(only, skip, says):
    with pytest.raises(ValueError, match=says):
        select(only, skip)


@pytest.mark.parametrize("name", [*EXTENDED.values(), *OTHERS.values()])
def test_names_of_resources_are_taken_as_kubelet_takes_them(name):
    assert (reason_without_resource(name) is None) == is_extended_resource(name)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "one is required"),
        ({"command": ("x",), "socket": "y"}, "cannot be used with the command"),
        ({"command": ("x",), "size": 0}, "invalid value 0 for --size"),
        ({"command": ("x",), "timeout_s": 0}, "--timeout"),
        ({"command": ("x",), "healthy_command": "y"}, "--healthy-command requires"),
        ({"socket": "x", "pod": PodName("a", "b", "c")}, "--pod requires --folder"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given, says):
    with pytest.raises(ValueError, match=says):
        Settings(**given)


@pytest.mark.parametrize("text", ["pod", "a/b", "a//c", "a/b/c/d"])
def test_a_pod_has_three_names(text):
    with pytest.raises(ValueError, match="NAMESPACE/POD/CONTAINER"):
        PodName.parse(text)


def test_others_words_are_made_fit_for_a_line():
    assert one_line("a\n\tb\x1b[31m\0") == "a b?[31m?"
    assert len(one_line("x" * 5000)) == 400


def test_a_report_becomes_junit(tmp_path):
    async def nothing(subject):
        return None

    check = {name: Check(name, f"It is {name}.", nothing) for name in ("a-good", "a-bad", "b")}
    verdicts = (
        CheckVerdict(check["a-good"], CheckOutcome.PASSED, "", 0.5),
        CheckVerdict(check["a-bad"], CheckOutcome.FAILED, 'says "<no>" & ends', 1.25),
        CheckVerdict(check["b"], CheckOutcome.SKIPPED, "not asked for", 0),
    )
    path = tmp_path / "report.xml"
    write(Report("example.org/thing", (), verdicts, 2.0), path)
    suite = xml.parse(path).getroot().find("testsuite")
    counts = {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped", "time")}
    assert counts == {
        "name": "device-plugin example.org/thing",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "2.000",
    }
    good, bad, skipped = suite.findall("testcase")
    assert (good.get("classname"), good.get("name"), good.get("time"), len(good)) == (
        "device-plugin.a",
        "a-good",
        "0.500",
        0,
    )
    assert bad.find("failure").get("message") == 'says "<no>" & ends'
    assert skipped.find("skipped").get("message") == "not asked for"


def test_the_documentation_lists_every_check_in_order():
    page = (Path(__file__).parents[4] / "docs" / "conformance-checks.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*) \|$", page.partition("## How")[0], re.MULTILINE)
    assert rows == [(check.id, check.sentence) for check in CATALOGUE]
