"""Rows in the order of one column: values before texts, texts with numbers, empty cells last."""

import pytest
from hypothesis import given, strategies as st

from console.viewmodel.drawing.glyphs import UNICODE
from console.viewmodel.drawing.numbers import latency, mebibytes, seconds, short
from console.viewmodel.drawing.table_layout import Column, TableRow, TextTable, draw
from console.viewmodel.drawing.text import cell
from console.viewmodel.sorting import Order, next_order, order_words, sort_key, sorted_table

COLUMNS = (Column("name", "NODES", 0), Column("age", "age", 1), Column("note", "note", 2))


def table(*rows: tuple[str, str]) -> TextTable:
    made = [TableRow(name, {"name": cell(name), "age": cell(age)}) for name, age in rows]
    made.append(TableRow("z", {"name": cell("z"), "note": cell("n")}))
    return draw(COLUMNS, made, 80, UNICODE)


ROWS = table(("n10", "3m05s"), ("n2", "12 s"), ("n1", "2h07m"), ("n3", "400 ms"), ("n4", "12 s"))


def keys(order: Order | None) -> list[str]:
    return list(sorted_table(ROWS, order).keys)


def test_durations_of_any_unit_are_sorted_by_value_and_equal_rows_stay() -> None:
    assert keys(Order("age")) == ["n3", "n2", "n4", "n10", "n1", "z"]
    assert keys(Order("age", is_descending=True)) == ["n1", "n10", "n2", "n4", "n3", "z"]


def test_numbers_in_names_count_as_numbers() -> None:
    assert keys(Order("name")) == ["n1", "n2", "n3", "n4", "n10", "z"]


def test_without_an_order_or_its_column_the_table_stays() -> None:
    assert keys(None) == keys(Order("gone")) == list(ROWS.keys)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_console_s_own_numbers_are_sorted_by_value(one: float, other: float) -> None:
    low, high = sorted((one, other))
    for words in (seconds, latency, short, lambda value: mebibytes(int(value * 2**20))):
        assert sort_key(words(low)) <= sort_key(words(high)), (words(low), words(high))


@pytest.mark.parametrize("text", ["1.2.3.4:22", "12%", "0x1f", "\x1b[31m", "n", "²", "9" * 400])
def test_any_text_has_a_place(text: str) -> None:
    assert sorted([sort_key(text), sort_key("a"), sort_key("1"), sort_key("")])


def test_the_next_order_goes_round_through_the_table_s_own() -> None:
    order: Order | None = None
    seen = []
    for _ in range(4):
        order = next_order(ROWS, order, 1)
        seen.append(order.column if order else None)
    assert seen == ["name", "age", "note", None]
    assert next_order(ROWS, None, -1) == Order("note")
    assert next_order(ROWS, Order("age", is_descending=True), 1) == Order(
        "note", is_descending=True
    )


def test_the_heading_says_the_order() -> None:
    assert order_words(ROWS, Order("age", is_descending=True)) == "by age, down"
    assert order_words(ROWS, None) == order_words(ROWS, Order("gone")) == ""
