"""Text from a cluster is shown as text, in exactly the cells it was given."""

from hypothesis import given, strategies as st

from console.viewmodel.drawing.text import Span, cells_wide, clean, crop, fit, span, wrap

texts = st.text(max_size=60)
hostile = st.one_of(
    texts, st.sampled_from(["[/]", "[b", "\x1b[31mred", "日本語", "a\u202eb", "\0"])
)


def test_escape_sequences_vanish_and_other_controls_are_marked() -> None:
    assert clean("\x1b[1;31mred\x1b[0m") == "red"
    assert clean("\x1b]0;title\x07shown") == "shown"
    assert clean("a\tb\nc") == "a b c"
    assert clean("a\x07b\u202ec") == "a\ufffdb\ufffdc"


def test_markup_is_left_alone() -> None:
    assert clean("[/] [b] {x}") == "[/] [b] {x}"


def test_very_long_lines_are_cut_before_they_are_measured() -> None:
    assert len(clean("x" * 90_000)) == 2_000


@given(hostile)
def test_clean_text_has_no_control_characters(text: str) -> None:
    cleaned = clean(text)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in cleaned)
    assert clean(cleaned) == cleaned


@given(st.lists(hostile, max_size=5), st.integers(0, 80), st.booleans())
def test_fitted_spans_have_exactly_the_width(
    parts: list[str], width: int, align_right: bool
) -> None:
    fitted = fit([span(part) for part in parts], width, "…", align_right=align_right)
    assert cells_wide(fitted) == width


@given(hostile, st.integers(1, 40))
def test_cropped_text_is_never_wider(text: str, width: int) -> None:
    assert cells_wide((Span(crop(clean(text), width, "…")),)) <= width


@given(hostile, st.integers(4, 40), st.integers(1, 5))
def test_wrapped_lines_fit_and_are_few(text: str, width: int, max_lines: int) -> None:
    lines = wrap(text, width, max_lines, "…")
    assert 1 <= len(lines) <= max_lines
    assert all(cells_wide((Span(line),)) <= width for line in lines)


@given(st.lists(st.text("abc", min_size=1, max_size=8), max_size=12), st.integers(8, 30))
def test_wrapping_with_room_loses_no_word(words: list[str], width: int) -> None:
    assert " ".join(wrap(" ".join(words), width, 100, "…")).split() == words


def test_blanks_may_be_cut_without_an_ellipsis() -> None:
    assert fit([Span("name"), Span("      ")], 6, "…") == (Span("name"), Span("  "), Span(""))
    assert "".join(part.text for part in fit([Span("name"), Span("  x")], 6, "…")) == "name… "
