"""A stack shows the same from every source."""

import faulthandler
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from nodeagent.detect.stacks import (
    StackFrame,
    Thread,
    parse_dump,
    parse_py_spy,
    render,
    standing_of,
    waits_in,
)
from nodeagent.protocol.standing import MAX_STACK_CHARS

SITE = "/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
WAKE = "/repo/nodeagent/rank/groups/halting.py"
OUTER = [
    StackFrame("/repo/nodeagent/rank/iteration/iteration_phases.py", 60, "run"),
    StackFrame("/repo/nodeagent/rank/process/rank_main.py", 70, "run_rank"),
    StackFrame("/repo/nodeagent/rank/process/template.py", 300, "<module>"),
]


def no_line(_file: str, _line: int) -> str:
    return ""


def test_wait_of_our_own_is_named_after_who_waits() -> None:
    frames = [
        StackFrame("/usr/lib/python3.11/threading.py", 331, "wait"),
        StackFrame("/usr/lib/python3.11/threading.py", 629, "wait"),
        StackFrame(WAKE, 115, "wait_unless_halted"),
        StackFrame("/repo/nodeagent/rank/iteration/iteration_phases.py", 170, "_sum_over_all"),
        *OUTER,
    ]
    assert waits_in(frames) == "_sum_over_all (rank/iteration/iteration_phases.py:170)"


def test_collective_is_named_with_its_caller_and_without_wrappers() -> None:
    frames = [
        StackFrame(C10D, 2938, "all_reduce"),
        StackFrame(f"{SITE}/torch/distributed/c10d_logger.py", 83, "wrapper"),
        StackFrame(f"{SITE}/megatron/core/tensor_parallel/mappings.py", 33, "_reduce"),
        *OUTER,
    ]
    assert waits_in(frames) == "all_reduce in _reduce (core/tensor_parallel/mappings.py:33)"


def test_exchange_between_stages_and_the_rendezvous_are_waits() -> None:
    for file in (
        f"{SITE}/megatron/core/pipeline_parallel/p2p_communication.py",
        "/repo/nodeagent/rank/agent_link/rendezvous_store.py",
    ):
        assert (
            waits_in([StackFrame(file, 9, "recv"), *OUTER])
            == "recv in run (rank/iteration/iteration_phases.py:60)"
        )


def test_native_wait_for_a_handle_is_known_by_its_line() -> None:
    frames = [
        StackFrame(f"{SITE}/megatron/core/tensor_parallel/layers.py", 535, "backward"),
        *OUTER,
    ]
    assert waits_in(frames, "            handle.wait()\n") == str(frames[0])
    assert waits_in(frames, "grad_weight = grad_output.t().matmul(total_input)\n") is None


def test_wrapper_of_torch_distributed_further_out_is_no_wait() -> None:
    deep = [StackFrame("/repo/model.py", number, "forward") for number in range(8)]
    assert waits_in([*deep, StackFrame(C10D, 1, "all_reduce"), *OUTER]) is None
    assert waits_in([StackFrame(f"{SITE}/torch/distributed/fsdp/wrap.py", 1, "forward")]) is None
    assert waits_in([]) is None


def test_dump_of_the_fault_handler_is_read_and_the_main_thread_is_the_one_that_trains() -> None:
    with tempfile.TemporaryFile("w+") as file:
        began, done = threading.Event(), threading.Event()

        def idle() -> None:
            began.set()
            done.wait()

        other = threading.Thread(target=idle)
        other.start()
        began.wait()
        faulthandler.dump_traceback(file, all_threads=True)
        done.set()
        other.join()
        file.seek(0)
        text = file.read()
    threads = parse_dump(f"noise before\n{text}noise after\n")
    standing = standing_of(threads, "faulthandler", no_line)
    assert standing is not None
    assert standing.where == "computing"
    assert standing.place.startswith("test_dump_of_the_fault_handler_is_read")
    assert standing.stack.startswith("training thread:\n    test_dump")
    assert "idle (" in standing.stack


PROGRAM = """
import _thread, faulthandler, sys, time

def library():
    ready.release()
    time.sleep(60)

def trains():
    faulthandler.dump_traceback(sys.stdout, all_threads=True)

ready = _thread.allocate_lock()
ready.acquire()
_thread.start_new_thread(library, ())
ready.acquire()
trains()
"""


def test_thread_that_a_library_starts_past_threading_is_not_the_one_that_trains(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "program"]  # as ranks are started: no module at the outermost
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    threads = parse_dump(done.stdout)
    assert [thread.is_main for thread in threads] == [True, True]
    standing = standing_of(threads, "faulthandler", no_line)
    assert standing is not None
    assert standing.place.startswith("trains (")


def test_dump_that_was_cut_off_tells_what_it_has() -> None:
    text = 'Thread 0x00007f (most recent call first):\n  File "/a/b.py", line 3 in f\n  File "/a/'
    assert parse_dump(text) == [Thread("another thread", [StackFrame("/a/b.py", 3, "f")])]


def test_dump_of_py_spy_is_read() -> None:
    frame = {
        "name": "all_reduce",
        "filename": C10D,
        "short_filename": "x",
        "line": 7,
        "locals": None,
    }
    caller = {"name": "step", "filename": "/repo/train.py", "line": 12}
    text = json.dumps([{"pid": 1, "thread_name": "MainThread", "frames": [frame, caller]}])
    standing = standing_of(parse_py_spy(text), "py-spy", no_line)
    assert standing is not None
    assert (standing.where, standing.collective) == (
        "collective",
        "all_reduce in step (/repo/train.py:12)",
    )


@pytest.mark.parametrize(
    "text", ["", "Error: permission denied", "{}", "[1]", '[{"frames": 3}]', "null"]
)
def test_what_is_no_dump_says_nothing(text: str) -> None:
    assert standing_of(parse_py_spy(text), "py-spy", no_line) is None
    assert standing_of(parse_dump(text), "faulthandler", no_line) is None


def test_text_is_bounded_and_keeps_the_beginning() -> None:
    deep = [StackFrame("/a/b/c.py", number, "f" * 50) for number in range(1000)]
    text = render([Thread("training thread", deep)])
    assert len(text) == MAX_STACK_CHARS
    assert text.startswith("training thread:\n    fff")
    assert text.endswith("...")
