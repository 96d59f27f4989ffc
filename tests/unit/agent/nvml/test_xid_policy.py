"""Which Xids count: NVIDIA's two variables with the meaning they document."""

import pytest

from purser.agent.nvml.xids import XidClass, XidPolicy, classify, describe

APPLICATION = (13, 31, 43, 45, 68, 109)


def policy(disable: str | None = None, enable: str | None = None) -> XidPolicy:
    environment = {"DP_DISABLE_HEALTHCHECKS": disable, "DP_ENABLE_HEALTHCHECKS": enable}
    return XidPolicy.from_environment({name: value for name, value in environment.items() if value is not None})


@pytest.mark.parametrize(
    ("xid", "kind"),
    [
        *((xid, XidClass.APPLICATION) for xid in APPLICATION),
        *((xid, XidClass.UNTIL_RESET) for xid in (46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143)),
        *((xid, XidClass.RECOVERS) for xid in (63, 92, 94, 154, 0, 7, 100_000)),
    ],
)
def test_every_xid_has_its_class(xid: int, kind: XidClass) -> None:
    assert classify(xid) is kind


def test_an_xid_is_described_in_the_words_of_the_catalogue() -> None:
    assert describe(79) == "Xid 79 (GPU has fallen off the bus)"
    assert describe(100_000) == "Xid 100000"


@pytest.mark.parametrize(
    ("disable", "enable", "watched", "ignored"),
    [
        pytest.param(None, None, {79, 48, 94, 1}, set(APPLICATION), id="by default all but application errors count"),
        pytest.param("", "", {79, 48}, set(APPLICATION), id="empty variables are absent ones"),
        pytest.param("all", None, set(), {79, 48, 13}, id="all turns everything off"),
        pytest.param("xids", None, set(), {79, 48, 13}, id="xids is another word for all"),
        pytest.param("foo-xids,ecc", None, set(), {79}, id="anything with xids in it is too"),
        pytest.param(" ALL ", None, set(), {79}, id="case and blanks do not matter"),
        pytest.param("79,48", None, {74, 94}, {79, 48, 13}, id="a list adds to the ignored ones"),
        pytest.param("68,not-an-int,67", None, {79}, {67, 68}, id="what is no number counts for nothing"),
        pytest.param("-79,", None, {79}, {13}, id="nor does a negative one"),
        pytest.param("all", "79", {79}, {48, 94, 13}, id="disable all and enable one watches that one alone"),
        pytest.param("79", "79", {79, 48}, {13}, id="named in both lists is watched"),
        pytest.param(None, "13", {13, 79}, {31}, id="an application error can be enabled"),
        pytest.param(None, "all", {13, 31, 79}, set(), id="all of them can be"),
        pytest.param("79", "all", {13, 48}, {79}, id="a name wins over all"),
        pytest.param("all", "all", {13, 79}, set(), id="enable wins over disable"),
    ],
)
def test_the_variables_choose(disable: str | None, enable: str | None, watched: set[int], ignored: set[int]) -> None:
    chosen = policy(disable, enable)
    assert {xid for xid in watched | ignored if chosen.watches(xid)} == watched
