"""Lost lines of the kernel log: counted, told at once, then once a minute."""

from nodeagent.detect.lost_lines import REPORT_S, Lost, LostLines


def test_nothing_is_told_where_nothing_was_lost() -> None:
    assert LostLines().take(Lost(), [b"NVRM: Xid 79", b"Missed a kernel message"], 0.0) is None


def test_first_loss_is_told_at_once_and_later_ones_together() -> None:
    lost = LostLines()
    first = lost.take(Lost(num_lines=3), [], 10.0)
    assert first is not None
    assert (first.probe, first.sign, first.value, first.is_event) == (
        "kernel log",
        "lines_lost",
        3,
        True,
    )
    assert first.text.startswith("3 lines of the log were lost")
    assert lost.take(Lost(num_lines=4), [], 11.0) is None
    assert lost.take(Lost(num_bytes=500), [], 12.0) is None
    later = lost.take(Lost(), [], 10.0 + REPORT_S)
    assert later is not None
    assert later.text.startswith("4 lines and 500 bytes of the log")
    assert lost.take(Lost(), [], 20.0 + 2 * REPORT_S) is None


def test_what_journald_has_missed_is_counted_from_its_words() -> None:
    words = b"2026-11-21T10:00:00+0000 n1 systemd-journald[301]: Missed 27 kernel messages"
    told = LostLines().take(Lost(num_lines=1), [words, b"n1 kernel: Missed 5 kernel messages"], 0.0)
    assert told is not None
    assert told.value == 28
