"""The report: one page that needs nothing else, and says what the numbers say."""

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from tests.unit.simulator.builders import node, small_demo, timed, whole

from purser.simulator.orders import draw_order, timed_order
from purser.simulator.parallel import Task, run_all
from purser.simulator.report.document import as_csv, document
from purser.simulator.report.html import report
from purser.simulator.report.verdicts import timed_verdicts
from purser.simulator.results import AnyRun, TimedRun, mean_by_key, mean_by_percent
from purser.simulator.workload import SimWorkload

VOID = {"meta", "br", "link", "img"}
EVIL = "</title><script>alert(1)</script>&"


class Page(HTMLParser):
    """Tags with their attributes; complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)


@pytest.fixture(scope="module")
def arrived() -> tuple[SimWorkload, list[AnyRun]]:
    made_up = small_demo()
    orders = [draw_order(made_up, seed, 130) for seed in (1, 2)]
    tasks = [Task(name, order, bound=name == "best-fit") for name in ("best-fit", "spread") for order in orders]
    return made_up, run_all(made_up, tasks, 1, lambda place, events: None)


def departures(made_up: SimWorkload) -> list[AnyRun]:
    tasks = [Task(name, timed_order(made_up, 1)) for name in ("best-fit", "random")]
    return run_all(made_up, tasks, 1, lambda place, events: None)


@pytest.fixture(scope="module")
def pages(arrived: tuple[SimWorkload, list[AnyRun]]) -> list[str]:
    """One of each kind; the lists of the second have names that would break a page."""
    made_up, runs = arrived
    evil = SimWorkload(EVIL, (*made_up.nodes, node("a", 4, model=EVIL)), made_up.pods, (EVIL,))
    return [report(made_up, runs), report(evil, departures(made_up))]


def test_pages_are_whole_and_need_nothing_from_elsewhere(pages: list[str]) -> None:
    for text in pages:
        page = Page(text)
        assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "link", "iframe", "object"})
        for tag, attributes in page.tags:
            for name in ("src", "href", "xlink:href", "srcset", "action"):
                assert (attributes.get(name) or "#").startswith("#"), f"<{tag} {name}={attributes[name]}>"
        assert "@import" not in text
        assert all(part.startswith(("#", '"#')) for part in text.split("url(")[1:])


def test_plots_are_pictures_and_no_id_is_there_twice(pages: list[str]) -> None:
    for text in pages:
        page = Page(text)
        assert page.count("svg") >= 4
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        for part in text.split("<svg")[1:]:
            ET.fromstring("<svg" + part[: part.index("</svg>") + 6])


def test_everything_that_belongs_in_it_is_there(pages: list[str]) -> None:
    first, second = (" ".join(Page(text).text) for text in pages)
    for words in (
        "GPU placement policies on a made-up cluster",
        "Once pods have asked for 100% of the GPUs, best-fit has allocated",
        "the choice of policy is worth",
        "At the end, spread has the fewest unplaced pods",
        "best-fit left the fewest 8-GPU pods unplaced",
        "No policy can have allocated more than",
        "Idle GPUs by cause",
        "Pods that could not be placed",
        "8-GPU",
        "How to read this",
    ):
        assert words in first
    for words in ("Pods wait least with best-fit", "pending GPU-hours", "Waiting time", "How to read this"):
        assert words in second


def test_one_policy_knows_the_mix_and_two_know_it(arrived: tuple[SimWorkload, list[AnyRun]]) -> None:
    made_up, runs = arrived
    assert "2 policies, which know the mix of pods in advance" in report(made_up, runs)
    alone = report(made_up, [run for run in runs if run.policy == "spread"])
    assert "1 policy, which knows the mix of pods in advance" in alone


def test_names_from_lists_cannot_break_the_page(pages: list[str]) -> None:
    page = Page(pages[1])
    assert page.count("script") == 0
    assert sum(EVIL in text for text in page.text) >= 4  # twice the title, the model, the note


def test_where_nobody_ever_waited_it_says_so() -> None:
    made = timed([node("a", 4)], [(0, 5, whole(1)), (1, 5, whole(1))])
    runs = [run for run in departures(made) if isinstance(run, TimedRun)]
    [said] = timed_verdicts({run.policy: [run] for run in runs})
    assert said.startswith("No pod ever waited")


def test_documents_have_means_over_orders_and_each_run(arrived: tuple[SimWorkload, list[AnyRun]]) -> None:
    made_up, runs = arrived
    found = document(made_up, runs)
    assert [each["policy"] for each in found["policies"]] == ["best-fit", "spread"]
    for each in found["policies"]:
        assert set(each["allocation_percent"]) == {"70", "80", "90", "95", "100", "110", "120", "130"}
        assert set(each["fragmentation_percent"]) == set(each["allocation_percent"])
        first, second = each["runs"]
        mean = (first["allocation_percent"]["100"] + second["allocation_percent"]["100"]) / 2
        assert each["allocation_percent"]["100"] == pytest.approx(mean, abs=1e-4)
        assert each["placed"] == (first["placed"] + second["placed"]) / 2
        assert each["pods_per_second"] > 0
        assert first["placed"] + sum(first["failed"].values()) == first["pods"]
        assert sum(first["idle_by_cause_percent"].values()) == pytest.approx(
            100 - first["allocation_percent"]["100"], abs=2 * 100 / made_up.gpus
        )  # the mean of some moments, and the last of them: a pod or two apart


def test_csv_has_a_line_for_each_run(arrived: tuple[SimWorkload, list[AnyRun]]) -> None:
    lines = as_csv(arrived[1]).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("policy,order,seed,learned,pods,allocation_percent.70,")


def test_a_mean_at_a_percent_is_over_the_runs_that_were_there() -> None:
    assert mean_by_percent([{90: 80.0, 100: 90.0}, {100: 92.0}]) == {"90": 80.0, "100": 91.0}
    assert mean_by_key([{"share": 4}, {"share": 1, "1-GPU": 1}]) == {"share": 2.5, "1-GPU": 0.5}
