"""How long is paused after writes that others undo."""

from tests.unit.kube.servers import ManualClock

from purser.kube.backoff import MAX_UNDO_INTERVAL_S, TOLERATED_UNDOS, WritePace


def test_what_is_undone_over_and_over_is_written_less_and_less_often() -> None:
    clock = ManualClock()
    pace = WritePace(0.2, 5.0, clock)

    def written(place: str, value: object) -> float:
        pause = pace.after(place, value)
        clock.advance(pause)
        return pause

    by_chance = [written("labels", {"a": "b"}) for _ in range(TOLERATED_UNDOS + 1)]
    assert by_chance == [0.2] * len(by_chance)
    assert [written("labels", {"a": "b"}) for _ in range(6)] == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert written("amounts", {"a": "b"}) == 0.2, "of another place nothing was undone"
    assert written("labels", {"a": "b"}) == 5.0
    clock.advance(MAX_UNDO_INTERVAL_S + 1)
    assert written("labels", {"a": "b"}) == 0.2, "that was long ago"
    assert [written("labels", {"a": str(value)}) for value in range(9)] == [0.2] * 9, "news are no quarrel"
