"""Findings in a log without end."""

from hypothesis import given, settings, strategies as st

from profiles.faults.catalogue import default_catalogue
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.matching.shapes import NUMBERS, ShapeBook
from profiles.faults.status_table import default_statuses
from profiles.faults.stream import QUIET_LINES, Finding, FindingStream

_FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered"
_RESET = "gloo: Connection closed by peer [10.0.0.1]:1"
_PIECES = st.sampled_from(
    [
        b"step 1 loss 2.1\n", b"\n", b"\r", b"\xff\xfe", b"NVRM: Xid (PCI:0000:1b:00): 79, x\n",
        _FAULT.encode() + b"\n", _RESET.encode() + b"\n", b"Xid", b"loss: nan ", b"Killed\n",
        "█▎".encode(), b"\x1b[31m", b"quiet line\n" * 210, b"Traceback (most recent call last):\n",
        b"[rank1]: Traceback (most recent call last):\n", b"[rank1]: lib.Odd: no\n", b"lib.Odd\n",
    ]
)  # fmt: skip
_LOGS = st.lists(_PIECES | st.binary(max_size=30), max_size=25).map(b"".join)


def _findings(log: bytes, size: int | None = None) -> list[Finding]:
    stream = FindingStream()
    step = size or max(len(log), 1)
    found = [
        finding
        for start in range(0, len(log), step)
        for finding in stream.feed(log[start : start + step])
    ]
    return found + stream.close()


def test_a_fault_and_its_symptoms_are_one_finding_with_line_numbers() -> None:
    log = f"step 1 loss 2.0\n{_RESET}\n{_FAULT}\n{_RESET}\ndone"
    [finding] = _findings(log.encode())
    assert (finding.first_line, finding.last_line) == (2, 4)
    assert finding.verdict.line == 3
    assert finding.verdict.status == "illegal_memory_access"


def test_faults_far_from_each_other_are_two_findings() -> None:
    quiet = "\n".join(["epoch text"] * (QUIET_LINES + 5))
    found = _findings(f"{_FAULT}\n{quiet}\n{_RESET}\n".encode())
    assert [finding.verdict.status for finding in found] == [
        "illegal_memory_access",
        "connection_refused_or_reset",
    ]


def test_a_fault_that_repeats_itself_without_end_keeps_memory_and_is_found() -> None:
    stream = FindingStream()
    found = [finding for _ in range(60) for finding in stream.feed(f"{_FAULT}\n".encode() * 100)]
    found += stream.close()
    assert 1 <= len(found) <= 10
    assert stream.num_lines == 6_000


def test_a_storm_ends_with_its_last_line() -> None:
    storm = "".join(
        f"n1:{number}: gloo: Connection closed by peer [10.0.0.1]:1\n" for number in range(500)
    )
    [finding] = _findings(f"start\n{storm}end\n".encode())
    assert (finding.first_line, finding.last_line) == (2, 501)


def test_a_fault_that_comes_back_after_progress_is_found_though_its_line_is_known() -> None:
    storm = "".join(f"[rank{rank}]: {_FAULT}\n" for rank in range(100))
    progress = "".join(f"step {step} loss 2.1\n" for step in range(60))
    first, second = _findings(f"{storm}{progress}[rank7]: {_FAULT}\n".encode())
    assert (first.last_line, second.first_line) == (100, 161)


def test_a_code_that_differs_is_read_though_its_line_was_harmless_many_times() -> None:
    log = "".join(f"task {number}: exited with code 0\n" for number in range(500))
    [finding] = _findings(f"{log}task 7: exited with code 137\n".encode())
    assert finding.verdict.status == "exited_abnormally"


def test_another_xid_is_read_in_a_storm_of_clean_ups() -> None:
    storm = "".join(
        f"[{number}.2] NVRM: Xid (PCI:0000:89:00): 45, pid={number}, Ch 1\n"
        for number in range(500)
    )
    cause = "[600.2] NVRM: Xid (PCI:0000:89:00): 48, pid=5, Ch 1\n"
    [finding] = _findings(f"{storm}{cause}{storm}".encode())
    assert (finding.verdict.status, finding.verdict.line) == ("ecc_error", 501)


def test_a_healthy_log_has_no_findings() -> None:
    log = "".join(f"step {number} | loss 2.{number % 10} | 2.0 s\n" for number in range(3000))
    assert _findings(log.encode()) == []


def test_a_loss_that_leaves_its_level_is_found_late_in_a_long_log() -> None:
    healthy = "".join(f"step {number} | loss 2.{number % 10}\n" for number in range(3000))
    log = healthy + "".join(f"step {number} | loss 41.0\n" for number in range(100))
    [finding] = _findings(log.encode())
    assert finding.verdict.status == "nan_loss"


def test_progress_lines_of_megatron_are_read_for_their_numbers_alone() -> None:
    # A rule that every one of them could match would cost most of the speed.
    line = (
        b" [2026-01-02 03:04:05] iteration      100/ 500000 | consumed samples:  51200 | elapsed time"
        b" per iteration (ms): 5000.1 | learning rate: 2.681E-04 | global batch size:   512 | lm loss:"
        b" 2.1E+00 | loss scale: 1.0 | grad norm: 0.312 | number of skipped iterations:   0 |"
        b" number of nan iterations:   0 |"
    )
    assert ShapeBook(default_catalogue().screen).shape_of(line) is NUMBERS


def test_a_line_of_90_000_characters_is_read_to_its_end() -> None:
    line = "x" * 90_000 + " " + _FAULT
    [finding] = _findings(f"{line}\n".encode())
    assert finding.verdict.status == "illegal_memory_access"


def test_a_line_of_a_megabyte_without_an_end_is_read_in_parts() -> None:
    log = b"ab " * 400_000
    assert _findings(log, 65_536) == []


def test_invalid_utf8_in_a_kernel_log_hides_nothing() -> None:
    log = b"\xff\xfe[1.2] NVRM: Xid (PCI:0000:89:00): 79, pid=\xf0\x28, GPU has fallen off the bus.\xc3\n"
    [finding] = _findings(log)
    assert finding.verdict.status == "gpu_driver_error"


def test_states_of_a_progress_bar_are_read_one_by_one() -> None:
    bar = " 1%| | 1/9 [00:01<00:09]\r 2%| | 2/9 [00:02<00:08]"
    [finding] = _findings(f"{bar}\r{_FAULT}\n".encode())
    assert finding.verdict.evidence == _FAULT


@settings(max_examples=60, deadline=None)
@given(log=_LOGS, size=st.integers(min_value=1, max_value=40))
def test_how_the_bytes_arrive_changes_nothing(log: bytes, size: int) -> None:
    assert _findings(log, size) == _findings(log)


@settings(max_examples=100, deadline=None)
@given(log=st.binary(max_size=400) | _LOGS)
def test_any_bytes_can_be_read(log: bytes) -> None:
    _findings(log)
    classify_excerpt(log)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=300))
def test_any_text_can_be_classified(text: str) -> None:
    assert classify_excerpt(text).status in default_statuses()


_SUCCESS = b':::MLLOG {"event_type": "INTERVAL_END", "key": "run_stop", "metadata": {"status": "success"}}\n'
_KEY_ERROR = b"Traceback (most recent call last):\nKeyError: 'x'\n"
_STALL = (
    b"W stall_inspector.cc:107] One or more tensors were submitted by subset of ranks and wait\n"
)


def test_the_end_of_a_run_excuses_its_teardown_but_not_the_next_run() -> None:
    quiet = b"bye\n" * 300
    assert _findings(_SUCCESS + quiet + _KEY_ERROR) == []
    [finding] = _findings(_SUCCESS + b"Beginning trial 2 of 10\n" + _KEY_ERROR)
    assert finding.verdict.line == 4
    other_run = b"".join(b"step %d loss 2.1\n" % step for step in range(150))
    [finding] = _findings(_SUCCESS + other_run + _KEY_ERROR)
    assert finding.verdict.status == "other_software_error"


def test_what_progress_would_refute_waits_for_it() -> None:
    refused = b"[W socket.cpp:755] [c10d] connect to [n1]:29500 failed (errno: 111 - Connection refused)\n"
    quiet = b"quiet\n" * 300
    progress = b"iteration 1/10 | 2 s\niteration 2/10 | 2 s\n"
    stream = FindingStream()
    assert stream.feed(refused + quiet + progress) + stream.close() == []
    assert [f.first_line for f in _findings(refused + quiet)] == [1]
    assert [f.first_line for f in _findings(refused + quiet + _FAULT.encode())] == [1, 302]
    assert len(_findings(refused + quiet + b"Beginning trial 2 of 2\n" + progress)) == 1


def test_a_stall_that_is_reported_once_is_over_when_the_log_goes_on() -> None:
    assert [f.verdict.status for f in _findings(_STALL)] == ["task_hang"]
    assert _findings(_STALL + b"NCCL INFO Channel\n" * 60) == []
    assert [f.verdict.status for f in _findings(_STALL * 3 + b"x\n" * 60)] == ["task_hang"]
