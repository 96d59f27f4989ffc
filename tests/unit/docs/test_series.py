"""How many series an agent exports at most, as docs/observability.md says."""

from pathlib import Path

from purser.agent.monitoring.gauges import MAX_CONTAINER_SERIES
from purser.core.monitoring import dcgm, hami

PAGE = Path(__file__).parents[3] / "docs" / "observability.md"


def test_the_bounds_of_series_are_those_of_the_tables() -> None:
    text = " ".join(PAGE.read_text().split())
    of_gpu = sum(metric.type is not dcgm.DcgmType.LABEL for metric in dcgm.METRICS)
    of_instance = sum(metric.per_instance for metric in dcgm.METRICS)
    assert f"at most {of_gpu} series for each GPU and {of_instance} for each GPU instance" in text
    new, old = (
        [sum(("share" in metric.labels) is is_share for metric in metrics) for is_share in (False, True)]
        for metrics in (hami.METRICS, hami.OLD_METRICS)
    )
    assert (
        f"of HAMi's {new[0]} for each GPU and {new[1]} for each share, of its older ones {old[0]} and {old[1]}" in text
    )
    assert f"{MAX_CONTAINER_SERIES:,} at most".replace(",", " ") in text
