"""What gauges are called."""

from purser.operator.model import GAUGE_HELP, Gauge


def test_every_gauge_says_what_it_means() -> None:
    assert set(GAUGE_HELP) == set(Gauge)
