"""``unicron classify`` as a user meets it."""

import gzip
import json
from pathlib import Path

import pytest

from controller.cli import main

_FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered\n"


def test_findings_of_a_raw_log_have_line_evidence_reason_and_response(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"step 1 loss 2.0\n{_FAULT}")
    assert main(["classify", str(log)]) == 0
    out = capsys.readouterr().out
    assert "line 2  SEV2  illegal_memory_access" in out
    assert "an illegal memory access was encountered" in out
    assert "1 finding in 2 lines" in out


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log.gz"
    log.write_bytes(gzip.compress(_FAULT.encode()))
    assert main(["classify", "--json", str(log)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["num_lines"] == 1
    assert report["findings"][0]["status"] == "illegal_memory_access"
    assert report["findings"][0]["line"] == 1


def test_an_empty_file_has_no_findings_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "empty.log"
    log.touch()
    assert main(["classify", str(log)]) == 0
    assert "is empty" in capsys.readouterr().out


def test_jsonl_answers_every_good_line_and_names_the_bad_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "specimens.jsonl"
    file.write_bytes(
        json.dumps({"id": "a", "channel": "stderr", "text": _FAULT}).encode()
        + b"\nnot json\n\xff\xfe\n[1]\n"
        + json.dumps({"id": "b", "channel": "nowhere", "text": ""}).encode()
        + b"\n"
        + json.dumps({"id": "c", "channel": "agent"}).encode()
        + b"\n\n"
        + json.dumps({"id": "d", "channel": "agent", "text": "all is well"}).encode()
    )
    assert main(["classify", "--jsonl", str(file)]) == 2
    captured = capsys.readouterr()
    answers = [json.loads(line) for line in captured.out.splitlines()]
    assert [answer["id"] for answer in answers] == ["a", "d"]
    assert answers[0] == {
        "id": "a",
        "status": "illegal_memory_access",
        "severity": "SEV2",
        "evidence": _FAULT.strip(),
        "reason": answers[0]["reason"],
    }
    assert answers[1]["severity"] == answers[1]["status"] == "none"
    assert all(f"line {number}:" in captured.err for number in (2, 3, 4, 5, 6))
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.log"], "no such file"),
        (["--jsonl", "nowhere.jsonl"], "no such file"),
        (["--jsonl", "a", "--json"], "leave out FILE and --json"),
        (
            [
                "--jsonl",
                ".",
            ],
            "is a directory",
        ),
        (["--explain", "ecc_eror"], "did you mean ecc_error"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_damaged_compressed_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "cut.gz"
    log.write_bytes(gzip.compress(_FAULT.encode() * 1000)[:60])
    assert main(["classify", str(log)]) == 2
    assert "cut.gz: the gzip file is cut off at byte 60" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ecc_error", "xid-79", "deliberate", "blocked-in-gpu-driver"])
def test_statuses_and_entries_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "--explain", name]) == 0
    assert capsys.readouterr().out.startswith(name)


def test_the_list_names_every_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "--list"]) == 0
    assert "link_flapping  SEV3" in capsys.readouterr().out


def test_an_abort_after_the_declared_success_is_a_note_and_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    success = ':::MLLOG {"key": "run_stop", "metadata": {"status": "success"}}\n'
    abort = "srun: error: n1: task 3: Aborted (core dumped)\n"
    path, other = tmp_path / "a.log", tmp_path / "b.log"
    path.write_text(f"step 1 loss 2.0\n{success}all done\n{abort}")
    other.write_text(f"step 1 loss 2.0\n{success}")
    note = "an abort in line 4, after the run had ended, is no fault"
    assert main(["classify", str(path)]) == 0
    assert capsys.readouterr().out == f"no findings in 4 lines of {path}; {note}\n"
    assert main(["classify", str(path), str(other)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].endswith(f"{path}  ({note})")
    assert rows[2].endswith(f"{other}")
    assert main(["classify", "--json", str(path), str(other)]) == 0
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report.get("abort_after_end_line") for report in reports] == [4, None]
    path.write_text(f"step 1 loss 2.0\n{abort}")
    assert main(["classify", str(path)]) == 0
    assert "1 finding in 2 lines" in capsys.readouterr().out
