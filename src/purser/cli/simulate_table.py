"""What `purser simulate` prints on a terminal: a line per policy."""

from typing import Any

from purser.cli.output import Column, OutputFormat, show


def print_table(found: dict[str, Any], output: OutputFormat) -> None:
    """Print a document (`purser.simulator.report.document`) as a table, and what no policy can exceed."""
    timed = "pending_gpu_hours" in found["policies"][0]
    columns = _timed_columns() if timed else _columns()
    show(found["policies"], columns, output, empty="", document=dict)
    for limit in found.get("bounds", ()):
        print(
            f"With {limit['order']}, no policy can allocate more than {limit['b_percent']:.2f}% at 100% arrived, or "
            f"more than {limit['c_percent']:.2f}% at the end if no pod fails before {limit['c_from_percent']:.2f}%."
        )


def _columns() -> list[Column[dict[str, Any]]]:
    return [
        Column("POLICY", lambda row: row["policy"]),
        *(
            _percent("ALLOCATED", "allocation_percent", percent, wide=percent not in (90, 100, 130))
            for percent in _SHOWN_PERCENTS
        ),
        *(
            _percent("FRAGMENTED", "fragmentation_percent", percent, wide=percent not in (100,))
            for percent in (90, 100, 130)
        ),
        Column("PLACED", lambda row: f"{row['placed']:.0f}"),
        Column("FAILED", lambda row: f"{sum(row['failed'].values()):.0f}"),
        Column("FAILED BY CLASS", lambda row: [f"{n} {count:.0f}" for n, count in row["failed"].items()], wide=True),
        Column("PODS/S", lambda row: f"{row['pods_per_second']:.0f}"),
    ]


_SHOWN_PERCENTS = (70, 80, 90, 95, 100, 110, 120, 130)


def _percent(head: str, field: str, percent: int, wide: bool) -> Column[dict[str, Any]]:
    def read(row: dict[str, Any]) -> str:
        value = row[field].get(str(percent))
        return "" if value is None else f"{value:.2f}"

    return Column(f"{head} AT {percent}%", read, wide)


def _timed_columns() -> list[Column[dict[str, Any]]]:
    return [
        Column("POLICY", lambda row: row["policy"]),
        Column("ALLOCATED", lambda row: f"{row['allocation_percent']:.2f}"),
        Column("FRAGMENTED", lambda row: f"{row['fragmentation_percent']:.2f}"),
        Column("PENDING GPU-HOURS", lambda row: f"{row['pending_gpu_hours']:.1f}"),
        Column("PODS THAT WAITED", lambda row: f"{row['waited_pods']:.0f}"),
        Column("MEAN WAIT S", lambda row: f"{row['waited_mean_s']:.1f}"),
        Column("P99 WAIT S", lambda row: f"{row['waited_p99_s']:.0f}"),
        Column("P95 WAIT S", lambda row: f"{row['waited_p95_s']:.0f}", wide=True),
        Column("LONGEST S", lambda row: f"{row['waited_max_s']:.0f}", wide=True),
        Column("PLACED", lambda row: f"{row['placed']:.0f}", wide=True),
        Column("NEVER PLACED", lambda row: f"{sum(row['failed'].values()):.0f}"),
        Column("BY CLASS", lambda row: [f"{n} {count:.0f}" for n, count in row["failed"].items()], wide=True),
        Column("PODS/S", lambda row: f"{row['pods_per_second']:.0f}"),
    ]
