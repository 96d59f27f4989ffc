"""docs/health.md names every Xid under NVIDIA's action, with what that makes of a GPU, and every state."""

import re
from collections.abc import Iterator
from pathlib import Path

from purser.core.health.catalogue import LAST_XID, XIDS, Action
from purser.core.health.state import HealthState, after_action

PAGE = (Path(__file__).parents[3] / "docs" / "health.md").read_text()
NO_ACTION = "none"
EFFECT = {
    HealthState.HEALTHY: "stays as it is",
    HealthState.SUSPECT: "is suspect",
    HealthState.NEEDS_RESET: "needs a reset",
    HealthState.NEEDS_REBOOT: "needs a reboot",
}


def rows(table: str) -> Iterator[list[str]]:
    for line in PAGE.partition(f"<!-- table: {table} -->")[2].strip().partition("\n\n")[0].splitlines()[2:]:
        yield [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]


def xids_in(cell: str) -> Iterator[int]:
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", cell):
        yield from range(int(first), int(last or first) + 1)


def test_every_xid_stands_under_its_action_with_what_it_does() -> None:
    told = {xid: (action, state) for action, xids, state in rows("xids") for xid in xids_in(xids)}
    assert set(told) == set(range(1, LAST_XID + 1))
    for xid, entry in XIDS.items():
        action, effect = told[xid]
        state = after_action(entry.action)
        assert action == (entry.action.value or NO_ACTION), xid
        assert effect.startswith(EFFECT[state]), xid
        assert ("pods" in effect) == (entry.action is Action.RESTART_APP), xid


def test_every_state_has_a_row_and_says_whether_pods_come() -> None:
    assert {state: takes for state, takes, *_ in rows("states")} == {
        state.value: "yes" if state.takes_pods else "no" for state in HealthState
    }
