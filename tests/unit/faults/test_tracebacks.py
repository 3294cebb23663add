"""The line that is shown of a traceback: the exception, not the header."""

from typing import Final

import pytest

from profiles.faults import excerpt, stream, tracebacks
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.sign import Sign
from profiles.faults.stream import Finding, FindingStream
from profiles.faults.tracebacks import OpenTraceback

HEADER: Final = f"{tracebacks.HEADER}:"
FRAMES: Final = (
    '  File "/app/train.py", line 12, in <module>',
    "    main()",
    '  File "/app/train.py", line 8, in main',
    "    raise Overfull(shard)",
)
RAISED: Final = "app.shards.Overfull: shard 7"


def found_in(*lines: str) -> Finding:
    log = FindingStream()
    [finding] = [*log.feed("\n".join(lines).encode()), *log.close()]
    return finding


def behind(prefix: str, *lines: str) -> list[str]:
    return [prefix + line for line in lines]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank3]: ",
        "3: ",
        "    | ",
        "\x1b[31m",
        "2026-11-05 10:20:30,123 ERROR: ",
    ],
)
def test_the_exception_is_shown_whatever_stands_before_each_line(prefix: str) -> None:
    lines = ["step 1 loss 2.0", *behind(prefix, HEADER, *FRAMES, RAISED)]
    finding = found_in(*lines)
    assert (finding.first_line, finding.last_line) == (2, 7)
    assert finding.verdict.line == 7
    assert finding.verdict.evidence.endswith(RAISED)
    assert finding.verdict.reason.startswith("line 7: ")
    assert classify_excerpt("\n".join(lines)) == finding.verdict


def test_behind_times_that_differ_and_without_any_below_the_header() -> None:
    times = [f"2026-11-05T10:20:3{n}.5Z " for n in range(6)]
    lines = (HEADER, *FRAMES, RAISED)
    assert found_in(*map(str.__add__, times, lines)).verdict.line == 6
    assert found_in(times[0] + HEADER, *FRAMES, RAISED).verdict.line == 6


def test_lines_of_other_processes_stand_between() -> None:
    of_3 = behind("[rank3]: ", HEADER, *FRAMES, RAISED)
    of_4 = behind("[rank4]: ", HEADER, "app.Other: by rank 4", "", "", "", "")
    mixed = [line for both in zip(of_3, of_4, strict=True) for line in both]
    assert found_in(*mixed).verdict.evidence == f"[rank3]: {RAISED}"
    mixed = [line for both in zip(of_4, of_3, strict=True) for line in both]
    assert found_in(*mixed).verdict.evidence == "[rank4]: app.Other: by rank 4"


def test_an_exception_without_words_counts() -> None:
    assert found_in(HEADER, *FRAMES, "app.Stopped").verdict.evidence == "app.Stopped"


@pytest.mark.parametrize(
    "below",
    [
        (),
        FRAMES,
        (*FRAMES, "that is no name: of an exception"),
        (*FRAMES, "x" * 10_000 + ": too long a line"),
        (*("    f()" for _ in range(400)), RAISED),
    ],
)
def test_without_an_exception_the_header_is_shown(below: tuple[str, ...]) -> None:
    verdict = found_in(HEADER, *below).verdict
    assert (verdict.line, verdict.evidence) == (1, HEADER)


def test_of_a_chain_the_first_exception_is_shown() -> None:
    chain = "During handling of the above exception, another exception occurred:"
    lines = [HEADER, *FRAMES, RAISED, "", chain, "", HEADER, *FRAMES, "app.Second: later"]
    assert found_in(*lines).verdict.evidence == RAISED


def test_a_line_that_the_catalogue_knows_decides_as_before() -> None:
    known = "RuntimeError: CUDA error: an illegal memory access was encountered"
    verdict = found_in(HEADER, *FRAMES, known).verdict
    assert (verdict.status, verdict.evidence) == ("illegal_memory_access", known)


def test_an_exception_that_comes_late_and_without_a_line_feed_is_shown() -> None:
    log = FindingStream()
    for line in (HEADER, *FRAMES):
        assert log.feed(line.encode() + b"\n") == []
    assert log.feed(RAISED.encode()) == []
    [finding] = log.close()
    assert (finding.verdict.line, finding.verdict.evidence) == (6, RAISED)


def test_of_many_tracebacks_the_first_is_shown() -> None:
    lines = [f"[h{chr(97 + n % 26)}{chr(97 + n // 26)}]: {HEADER}" for n in range(676)]
    assert found_in(*lines, *FRAMES).verdict.line == 1
    of_first = f"[haa]: {RAISED}"
    assert found_in(*lines[:60], of_first).verdict.evidence == of_first
    assert classify_excerpt("\n".join([*lines[:60], of_first])).evidence == of_first


def test_headers_without_end_are_not_all_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked for in hundreds of lines."""
    followed = list[int]()

    class Counted(OpenTraceback):
        def __init__(self, header: Sign) -> None:
            super().__init__(header)
            followed.append(header.line)

    monkeypatch.setattr(excerpt, "OpenTraceback", Counted)
    monkeypatch.setattr(stream, "OpenTraceback", Counted)
    lines = [f"[h{chr(97 + n % 26)}{chr(97 + n // 26)}]: {HEADER}" for n in range(676)]
    found_in(*lines)
    assert followed == list(range(1, 51))
    followed.clear()
    classify_excerpt("\n".join(lines))
    assert followed == list(range(1, 51))


def test_the_rest_of_a_line_of_a_megabyte_names_no_exception() -> None:
    log = FindingStream()
    log.feed(f"{HEADER}\n".encode())
    log.feed(b"x" * (1 << 20))
    [finding] = [*log.feed(b"app.Odd: in the middle of a line"), *log.close()]
    assert finding.verdict.line == 1
