"""What keys change."""

import pytest

from purser.top import keys
from purser.top.drawing import shown_columns
from purser.top.screen import Screen, handle_key, settled
from purser.top.view_names import TopView
from purser.top.views import filtered, table_of

from .states import NOW, cluster, node

TEN = cluster(tuple(node(f"n{i}") for i in range(10)))


def pressed(screen, *names, state=TEN, height=4, cells=200):
    for name in names:
        table = filtered(
            table_of(screen.view, state, NOW, sort=screen.choice.sort, down=screen.choice.down), screen.find
        )
        screen = handle_key(screen, name, table, height, shown_columns(table, cells, screen.choice.sort))
    return screen


def chosen(screen):
    return screen.choice.key


def test_the_cursor_moves_within_the_rows_and_the_rows_with_it():
    assert chosen(pressed(Screen(), "j", keys.DOWN, "k")) == "n1"
    last = pressed(Screen(), "G")
    assert (chosen(last), last.choice.top) == ("n9", 6)
    assert chosen(pressed(last, "j", keys.PAGE_DOWN)) == "n9"
    assert chosen(pressed(last, keys.PAGE_UP, keys.PAGE_UP, "k")) == "n0"
    assert pressed(last, keys.HOME).choice.top == 0


def test_the_cursor_stays_with_its_row_and_where_that_was_once_it_is_gone():
    screen = pressed(Screen(), "j", "j")
    more = cluster((node("a"), *TEN.nodes))
    found = settled(screen, table_of(TopView.NODES, more, NOW), 4)
    assert (chosen(found), found.choice.place) == ("n2", 3)
    fewer = cluster(tuple(each for each in TEN.nodes if each.name != "n2"))
    found = settled(screen, table_of(TopView.NODES, fewer, NOW), 4)
    assert (chosen(found), found.choice.place) == ("n3", 2)
    none = settled(screen, table_of(TopView.NODES, cluster(), NOW), 4)
    assert (chosen(none), none.choice.top) == ("", 0)
    assert pressed(none, "j", keys.ENTER, "G", state=cluster()).details is False


def test_views_follow_one_another_each_with_its_own_choice():
    screen = pressed(Screen(), "j", keys.TAB, keys.TAB)
    assert screen.view is TopView.PODS
    assert pressed(screen, keys.TAB, keys.TAB).choice.key == "n1"
    assert pressed(screen, keys.BACK_TAB, "h").view is TopView.NODES
    assert pressed(screen, "4").view is TopView.WAITING


def test_a_filter_counts_as_it_is_typed_and_can_be_kept_or_dropped():
    typing = pressed(Screen(), "/", "n", "7", "x", keys.BACKSPACE)
    assert typing.find == "n7"
    assert pressed(typing, keys.ESCAPE).find == ""
    kept = pressed(typing, keys.ENTER)
    assert (kept.find, kept.typed) == ("n7", None)
    assert pressed(kept, keys.ESCAPE).find == ""
    assert pressed(kept, "/", "1", keys.ESCAPE).find == "", "Escape shows all rows, also those of an older filter"
    assert pressed(typing, "q").is_over is False
    assert len(pressed(typing, *["y"] * 500).find) == 200


def test_rows_are_sorted_by_the_next_column_and_the_other_way_round():
    screen = pressed(Screen(), "s", "S")
    assert (screen.choice.sort, screen.choice.down) == (1, True)
    assert pressed(screen, "s").choice.down is False
    assert pressed(screen, "r") == screen


@pytest.mark.parametrize("view", list(TopView))
def test_rows_are_sorted_by_the_columns_that_are_shown_and_no_others(view):
    for cells in (40, 200):
        table = table_of(view, TEN, NOW)
        places = shown_columns(table, cells, 0)
        assert len(places) < len(table.heads) or cells == 200
        screen, found = Screen(view), []
        for _ in places:
            screen = pressed(screen, "s", cells=cells)
            found.append(screen.choice.sort)
        assert found == [*places[1:], 0]


def test_a_column_that_rows_are_sorted_by_stays_when_there_is_no_room_for_others():
    table = table_of(TopView.NODES, TEN, NOW)
    last = len(table.heads) - 1
    assert table.wide[last]
    assert last in shown_columns(table, 200, 0)
    assert shown_columns(table, 40, last) == [*shown_columns(table, 40, 0), last]


def test_details_and_help_are_left_as_they_were_entered():
    screen = pressed(Screen(), keys.ENTER, "j", "j", "k")
    assert (screen.details, screen.page_top) == (True, 1)
    assert pressed(screen, "q").details is False
    assert pressed(Screen(), "?").help
    assert pressed(Screen(), "?", "?").help is False
    assert pressed(screen, keys.INTERRUPT).is_over
    assert pressed(Screen(), "q").is_over
