"""Records, exits and logs in ``ranks/``."""

import json
import os
from pathlib import Path

import pytest

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.ranks.rank_files import NUM_LOGS_KEPT, RankFiles, last_words, tail_of
from nodeagent.ranks.supervisor import RankKey
from tests.fakes.fake_rank import Script, launch

KEY = RankKey(TaskId("gpt-a"), Generation(1), 0)


@pytest.fixture
def files(tmp_path: Path) -> RankFiles:
    return RankFiles(tmp_path / "ranks")


def write_record(files: RankFiles, key: RankKey, pid: int = 7) -> None:
    rank = launch(Script(), key.task, key.generation, key.global_rank)
    record = {"launch": rank.model_dump(mode="json"), "pid": pid, "start_ticks": 1}
    (files.directory / f"{key.stem}.json").write_text(json.dumps(record))


def test_record_of_the_template_is_read(files: RankFiles) -> None:
    write_record(files, KEY)
    (record,) = files.records()
    assert (record.key, record.pid, record.start_ticks) == (KEY, 7, 1)
    assert files.record(KEY) == record
    assert files.records(known={"gpt-a.1.0"}) == []


def test_renamed_process_keeps_its_file_and_its_birth_name(files: RankFiles) -> None:
    write_record(files, KEY)
    (first,) = files.records()
    assert (first.key, first.first_key, first.became) == (KEY, KEY, None)
    for generation in (2, 3):
        later = launch(Script(), generation=generation, global_rank=4, worker=1)
        (before,) = files.records()
        assert files.rename(before, later) == files.record(KEY)
        (now,) = files.records()
        assert (now.key, now.first_key) == (RankKey(KEY.task, Generation(generation), 4), KEY)
        assert (now.pid, now.start_ticks, now.launch) == (7, 1, first.launch)
        assert now.present == now.became == later
    assert [path.name for path in files.directory.iterdir()] == ["gpt-a.1.0.json"]


def test_half_written_new_name_is_none(files: RankFiles) -> None:
    write_record(files, KEY)
    (files.directory / "gpt-a.1.0.json.tmp").write_text('{"launch": {"task"')
    (record,) = files.records()
    assert record.key == KEY


def test_task_name_with_dots_keeps_its_files_apart(files: RankFiles) -> None:
    key = RankKey(TaskId("gpt.7b"), Generation(1), 0)
    write_record(files, key)
    files.log(key).write_text("x")
    files.retire(KEY)
    assert files.record(key) is not None
    assert files.log(key).exists()


def test_unreadable_record_is_moved_aside(files: RankFiles) -> None:
    path = files.directory / "gpt-a.1.0.json"
    path.write_text("{")
    assert files.records() == []
    assert not path.exists()
    assert path.with_suffix(".bad").exists()


def test_exit_of_an_older_process_of_the_rank_is_ignored(files: RankFiles) -> None:
    ended = {"pid": 6, "exit_code": 0, "signal": None, "wall_s": 1.0}
    (files.directory / "gpt-a.1.0.exit").write_text(json.dumps(ended))
    assert files.exit(KEY, 7) is None
    found = files.exit(KEY, 6)
    assert found is not None
    assert found.exit_code == 0


def test_launch_file_makes_a_rank_cold(files: RankFiles) -> None:
    assert not files.is_cold(KEY)
    path = files.write_launch(launch(Script()))
    assert path.name == "gpt-a.1.0.launch"
    assert files.is_cold(KEY)
    files.retire(KEY)
    assert not files.is_cold(KEY)


def test_logs_of_the_newest_ended_ranks_are_kept(files: RankFiles) -> None:
    keys = [RankKey(KEY.task, Generation(g), 0) for g in range(1, NUM_LOGS_KEPT + 4)]
    for age, key in enumerate(keys):
        files.log(key).write_text("x")
        os.utime(files.log(key), (age, age))
    write_record(files, keys[0])  # still living
    files.retire(keys[-1])
    kept = {path.stem for path in files.directory.glob("*.log")}
    assert kept == {key.stem for key in [keys[0], *keys[3:]]}


def test_tail_begins_at_a_line_and_has_at_most_the_asked_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    tail = tail_of(path, num_bytes=20)
    assert tail == "line 98\nline 99\n"
    assert tail_of(tmp_path / "missing") == ""


def test_last_words_begin_at_a_line_and_fit() -> None:
    assert last_words("one\ntwo\nthree\n", 11) == "two\nthree\n"
    assert last_words("one\ntwo", 100) == "one\ntwo"
    assert last_words("x" * 50 + "end", 10) == "xxxxxxxend"
    assert last_words("", 10) == ""


def test_last_words_of_a_fatal_signal_begin_with_its_name() -> None:
    threads = "Thread 0x1 (most recent call first):\n  File a\n" * 500
    current = "Current thread 0x2 (most recent call first):\n  File broken.py, line 3 in f\n"
    modules = f"\nExtension modules: {'numpy.random.mtrand, ' * 300}torch._C (total: 301)\n"
    text = f"iteration 7\nFatal Python error: Segmentation fault\n\n{threads}{current}{modules}"
    words = last_words(text, 1000)
    assert words.startswith("Fatal Python error: Segmentation fault\n  File a\nThread")
    assert words.endswith(f"{current}\n")
    assert len(words) <= 1000
    short = "Fatal Python error: Aborted\n\n" + current
    assert last_words(short, 1000) == short


def test_the_line_at_which_a_tail_begins_is_counted(files: RankFiles) -> None:
    lines = [f"line {number} é" for number in range(1, 20_001)]
    files.log(KEY).write_text("\n".join(lines))
    tail = files.tail(KEY)
    number = files.line_of(KEY, tail)
    assert lines[number - 1] == tail.split("\n")[0]
    assert files.line_of(KEY, "other words") == 0
    assert files.line_of(KEY, "") == 0
