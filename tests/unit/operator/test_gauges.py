"""What gauges are called."""

from purser.operator.gauges import HELP, Gauge


def test_every_gauge_says_what_it_means() -> None:
    assert set(HELP) == set(Gauge)
