"""What every Xid means, by the catalogue as NVIDIA spells it, and which count: NVIDIA's two variables with the meaning
they document."""

import json
from pathlib import Path

import pytest

from purser.core.health.catalogue import XIDS, Action, action_of, describe
from purser.core.health.machine import GpuHealth, after_xid
from purser.core.health.messages import condition_of, news_of
from purser.core.health.policy import XidPolicy

CATALOGUE = {
    int(xid): bucket for xid, bucket in json.loads((Path(__file__).parent / "xids.json").read_text())["xids"].items()
}

EFFECT = {
    "IGNORE": "none",
    "RESTART_APP": "pods",
    "WORKFLOW_XID_45": "none",
    "XID_154": "none",
    "RESET_GPU": "needs-reset",
    "WORKFLOW_XID_48": "needs-reset",
    "WORKFLOW_NVLINK_ERR": "needs-reset",
    "RESTART_VM": "needs-reboot",
    "RESTART_BM": "needs-reboot",
    "CONTACT_SUPPORT": "suspect",
    "CHECK_MECHANICALS": "suspect",
    "UPDATE_SWFW": "suspect",
    "CHECK_UVM": "suspect",
    "WORKFLOW_NVLINK5_ERR": "suspect",
    "": "suspect",
}
"""Of each bucket: the state of the GPU, or whether pods alone get an event, or nobody."""

UNKNOWN = (0, 173, 100_000)


def policy(disable: str | None = None, enable: str | None = None) -> XidPolicy:
    environment = {"DP_DISABLE_HEALTHCHECKS": disable, "DP_ENABLE_HEALTHCHECKS": enable}
    return XidPolicy.from_environment({name: value for name, value in environment.items() if value is not None})


def effect(xid: int, chosen: XidPolicy) -> str:
    """What an Xid does to a GPU that was healthy, and whether all that people see agrees with it."""
    health = after_xid(GpuHealth(), xid, chosen)
    news, condition = news_of(GpuHealth(), health), condition_of([("GPU 0", health)])
    if health.takes_pods:
        assert (health, news, condition) == (GpuHealth(), None, None)
        return "pods" if chosen.concerns_programs(xid) else "none"
    assert health.reason == describe(xid)
    assert news is not None
    assert news.words.startswith(f"is unhealthy: {describe(xid)}. ")
    assert condition is not None
    assert condition.unhealthy
    assert not chosen.concerns_programs(xid)
    return health.state.value


def test_the_catalogue_is_nvidias() -> None:
    assert {xid: entry.action.value for xid, entry in XIDS.items()} == CATALOGUE
    assert {xid: action_of(xid) for xid in UNKNOWN} == dict.fromkeys(UNKNOWN, Action.NONE_GIVEN)


def test_every_xid_does_what_its_action_says() -> None:
    expected = {xid: EFFECT[bucket] for xid, bucket in CATALOGUE.items()} | dict.fromkeys(UNKNOWN, "suspect")
    assert {xid: effect(xid, XidPolicy()) for xid in expected} == expected


def test_every_xid_can_be_turned_off_and_on() -> None:
    every = [*CATALOGUE, *UNKNOWN]
    assert {effect(xid, policy("all")) for xid in every} == {"none"}
    for chosen in (policy(None, "all"), policy("all", ",".join(map(str, every)))):
        enabled = {xid: effect(xid, chosen) for xid in every}
        assert enabled == {
            xid: "suspect" if (usual := effect(xid, XidPolicy())) in ("none", "pods") else usual for xid in every
        }


def test_an_xid_is_described_in_words() -> None:
    assert describe(79) == "Xid 79 (GPU has fallen off the bus)"
    assert describe(132) == "Xid 132 (error in copy engine 16)"
    assert describe(1) == "Xid 1"
    assert describe(100_000) == "Xid 100000"


PROGRAMS = {13, 31, 68}
NOBODY = {43, 45, 63}


@pytest.mark.parametrize(
    ("disable", "enable", "watched", "ignored"),
    [
        pytest.param(None, None, {79, 48, 109, 1}, PROGRAMS | NOBODY, id="by default those count that say so"),
        pytest.param("", "", {79, 48}, PROGRAMS | NOBODY, id="empty variables are absent ones"),
        pytest.param("all", None, set(), {79, 48, 13}, id="all turns everything off"),
        pytest.param("xids", None, set(), {79, 48, 13}, id="xids is another word for all"),
        pytest.param("foo-xids,ecc", None, set(), {79}, id="anything with xids in it is too"),
        pytest.param(" ALL ", None, set(), {79}, id="case and blanks do not matter"),
        pytest.param("79,48", None, {74, 95}, {79, 48, 13}, id="a list adds to the ignored ones"),
        pytest.param("68,not-an-int,67", None, {79}, {67, 68}, id="what is no number counts for nothing"),
        pytest.param("-79,", None, {79}, {13}, id="nor does a negative one"),
        pytest.param("all", "79", {79}, {48, 95, 13}, id="disable all and enable one watches that one alone"),
        pytest.param("79", "79", {79, 48}, {13}, id="named in both lists is watched"),
        pytest.param(None, "13", {13, 79}, {31}, id="a program's error can be enabled"),
        pytest.param(None, "all", {13, 31, 79}, set(), id="all of them can be"),
        pytest.param("79", "all", {13, 48}, {79}, id="a name wins over all"),
        pytest.param("all", "all", {13, 79}, set(), id="enable wins over disable"),
    ],
)
def test_the_variables_choose(disable: str | None, enable: str | None, watched: set[int], ignored: set[int]) -> None:
    chosen = policy(disable, enable)
    assert {xid for xid in watched | ignored if not chosen.state_after(xid).takes_pods} == watched


def test_the_dra_drivers_variable_disables_too() -> None:
    chosen = XidPolicy.from_environment({"ADDITIONAL_XIDS_TO_IGNORE": "79, 48", "DP_ENABLE_HEALTHCHECKS": "48"})
    assert [xid for xid in (48, 79, 95) if not chosen.state_after(xid).takes_pods] == [48, 95]


def test_events_for_programs_can_be_turned_off() -> None:
    assert [xid for xid in sorted(PROGRAMS) if policy("31").concerns_programs(xid)] == [13, 68]
