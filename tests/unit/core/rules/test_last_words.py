"""What the end of a log says about the end of its process."""

import pytest

from controller.core.rules.evidence import MAX_CHARS, Evidence, evidence_of, plain, read_last_words
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import LaunchFailed, RankExited, RankRaised

TRACEBACK = """\
loading data
Traceback (most recent call last):
  File "/home/me/train.py", line 10, in <module>
    main()
  File "/home/me/data.py", line 7, in main
    return json.load(file)
  File "/usr/lib/python3.12/json/__init__.py", line 293, in load
    return loads(fp.read())
"""


def exited(words: str, *, code: int | None = 1, signal: int | None = None) -> Evidence:
    observation = RankExited(
        task=TaskId("mine"), generation=Generation(1), global_rank=0, pid=7, exit_code=code,
        signal=signal, stderr_tail=words, log="/state/ranks/mine.1.0.log",
    )  # fmt: skip
    return evidence_of(observation, node=NodeId("n1"), at=1.0, observed_at=1.0, is_command=True)


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 'tokens'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "RuntimeError: Error(s) in loading state_dict for GPT:",
        "ConfigError: n_head does not divide n_embd",
    ],
)
def test_the_exception_and_the_programs_line_are_part_of_the_reason(error: str) -> None:
    evidence = exited(f"{TRACEBACK}{error}\n")
    assert evidence.summary == f"rank 0 exited with 1: {error} (/home/me/data.py:7)"
    assert evidence.own_words == error
    assert evidence.log == "/state/ranks/mine.1.0.log"


def test_the_prefix_of_a_launcher_is_left_out() -> None:
    words = "".join(f"[rank0]: {line}\n" for line in [*TRACEBACK.splitlines(), "KeyError: 3"])
    assert exited(words).summary == "rank 0 exited with 1: KeyError: 3 (/home/me/data.py:7)"


def test_a_refused_argument_needs_no_traceback() -> None:
    words = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --foo\n"
    assert exited(words).own_words == "train.py: error: unrecognized arguments: --foo"


def test_without_a_line_that_names_a_fault_the_last_lines_are_quoted() -> None:
    evidence = exited("one\n\ntwo\nthe model is too odd\ngiving up\n\n", code=3)
    assert (
        evidence.summary == "rank 0 exited with 3; its log ends: the model is too odd / giving up"
    )
    assert exited("").summary == "rank 0 exited with 1"


def test_a_kill_leaves_no_last_words() -> None:
    assert exited("KeyError: 'of yesterday'\n", code=None, signal=9).summary == (
        "rank 0 was ended by SIGKILL"
    )


@pytest.mark.parametrize("length", [10, 10**6])
def test_words_of_a_rank_are_one_printable_line_of_limited_length(length: int) -> None:
    evil = "ValueError: \x1b[31mred\x1b[0m\x07\x00 \u202egnp.exe\x9b2J " + "x" * length
    for evidence in (
        exited(f"{TRACEBACK}{evil}\n"),
        exited(f"{evil}\rstill {evil}"),
        evidence_of(
            RankRaised(
                task=TaskId("mine"), generation=Generation(1), global_rank=0,
                exception_type="Odd\x1b[2JError" * 100, message=evil, traceback="", iteration=1,
                is_in_collective=False, log="/x\n\x1b[2J.log",
            ),
            node=NodeId("n1"), at=1.0, observed_at=1.0,
        ),
        evidence_of(
            LaunchFailed(
                task=TaskId("mine"), generation=Generation(1), global_rank=0, reason=evil,
                stderr_tail=evil,
            ),
            node=NodeId("n1"), at=1.0, observed_at=1.0,
        ),
    ):  # fmt: skip
        for text in (evidence.summary, evidence.own_words, evidence.log):
            assert text.isprintable()
            assert "[31m" not in text
            assert len(text) <= 600


def test_a_cold_start_that_ended_says_why() -> None:
    failed = LaunchFailed(
        task=TaskId("mine"), generation=Generation(1), global_rank=2, stderr_tail=TRACEBACK + "KeyError: 1\n",
        reason="cold start ended with exit code 1 before its first word",
    )  # fmt: skip
    evidence = evidence_of(failed, node=NodeId("n1"), at=1.0, observed_at=1.0)
    assert evidence.summary == (
        "rank 2 could not be started: cold start ended with exit code 1 before its first word:"
        " KeyError: 1 (/home/me/data.py:7)"
    )


def test_a_quotation_is_cut_at_its_limit() -> None:
    assert plain("a" * 1000) == "a" * (MAX_CHARS - 3) + "..."
    assert read_last_words("").sentence == "; its log is empty"


def test_what_a_program_says_about_itself_is_told_apart_from_devices_disks_and_networks() -> None:
    refused = "command: 'pythn' is no program that can be run; mend argv"
    for observation, own_words in (
        (_raised("KeyError", "'tokens'"), "KeyError: 'tokens'"),
        (_raised("OSError", "[Errno 28] No space left on device"), ""),
        (_raised("RuntimeError", "CUDA error: uncorrectable ECC error encountered"), ""),
        (_raised("ProgramError", "program mine:build: no module mine"), ""),  # held anyway
        (_failed(f"the start ended with 2: {refused}", f"{refused}\n"), refused),
        (_failed("the start did nothing in 30 s", ""), ""),
        (
            _failed("the start ended with 2: full", "OSError: [Errno 28] No space left on device"),
            "",
        ),
    ):
        evidence = evidence_of(observation, node=NodeId("n1"), at=1.0, observed_at=1.0)
        assert evidence.own_words == own_words
        assert evidence.summary.count(refused) <= 1
    assert exited("Segfault\n", code=139).own_words == ""
    assert exited("done\n", code=3).own_words == "exit code 3"
    assert exited("Killed\n", code=None, signal=9).own_words == ""


def _raised(kind: str, message: str) -> RankRaised:
    return RankRaised(
        task=TaskId("mine"), generation=Generation(1), global_rank=0, exception_type=kind,
        message=message, traceback="", iteration=1, is_in_collective=False,
    )  # fmt: skip


def _failed(reason: str, tail: str) -> LaunchFailed:
    return LaunchFailed(
        task=TaskId("mine"), generation=Generation(1), global_rank=0, reason=reason, stderr_tail=tail
    )  # fmt: skip


def test_the_line_is_numbered_in_the_log_if_the_tails_place_is_known() -> None:
    words = read_last_words(f"{TRACEBACK}KeyError: 'tokens'\n")
    assert words.sentence == ": KeyError: 'tokens' (/home/me/data.py:7)"
    assert (
        words.sentence_from(101) == ": KeyError: 'tokens' (/home/me/data.py:7, line 109 of its log)"
    )
