"""Throughput tables in files: read, merged, shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.cli import main
from profiles.records import RecordError
from profiles.table_file import calibrated, load_table, merged, save_table


def point(workers: int, rate: float, origin: str = "estimated", **more: object) -> dict[str, Any]:
    return {
        "workers": workers,
        "flops_per_s": rate,
        "layout": {"dp": workers},
        "origin": origin,
        **more,
    }


def write(path: Path, *points: dict[str, Any], **more: object) -> Path:
    path.write_text(json.dumps({"version": 1, "title": "a task", "points": list(points), **more}))
    return path


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    as_json = write(tmp_path / "a.json", point(2, 3e12), point(1, 2e12))
    as_toml = tmp_path / "a.toml"
    as_toml.write_text(
        'version = 1\ntitle = "a task"\n'
        '[[points]]\nworkers = 1\nflops_per_s = 2e12\norigin = "estimated"\nlayout = { dp = 1 }\n'
        '[[points]]\nworkers = 2\nflops_per_s = 3e12\norigin = "estimated"\nlayout = { dp = 2 }\n'
    )
    assert load_table(as_json) == load_table(as_toml)
    assert [each.workers for each in load_table(as_json).points] == [1, 2]
    assert load_table(as_json).points[1].flops_per_s == 3e12


def test_measurements_stay_and_are_averaged_by_their_iterations(tmp_path: Path) -> None:
    one = load_table(
        write(tmp_path / "1.json", point(1, 9.0), point(2, 4.0, "measured", iterations=30))
    )
    two = load_table(
        write(
            tmp_path / "2.json",
            point(1, 8.0),
            point(2, 2.0, "measured", iterations=10),
            point(4, 7.0),
        )
    )
    table = merged([one, two])
    found = {each.workers: each for each in table.points}
    assert found[1].flops_per_s == 8.0  # of two estimates the later one
    # 30 iterations at rate 4 and 10 at rate 2 take 7.5 + 5 units of time.
    assert found[2].flops_per_s == pytest.approx(40 / 12.5)
    assert found[2].iterations == 40
    assert found[4].flops_per_s == 7.0
    measured = merged([one, load_table(write(tmp_path / "3.json", point(2, 100.0)))])
    assert measured.points[1].flops_per_s == 4.0  # an estimate changes no measurement


def test_the_faster_of_two_layouts_stays(tmp_path: Path) -> None:
    slow = point(2, 4.0, "measured", iterations=30)
    fast = {**point(2, 5.0, "measured", iterations=1), "layout": {"tp": 2}}
    tables = [
        load_table(write(tmp_path / f"{n}.json", each)) for n, each in enumerate((fast, slow))
    ]
    assert merged(tables).points[0].layout.tp == 2


def test_estimates_are_calibrated_by_the_nearest_size_that_was_measured(tmp_path: Path) -> None:
    estimates = write(tmp_path / "e.json", *(point(size, 10.0 * size) for size in (1, 2, 4, 8, 64)))
    measured = write(
        tmp_path / "m.json",
        point(2, 10.0, "measured", iterations=3),
        point(8, 60.0, "measured", iterations=3),
        point(16, 1.0, "measured", iterations=3),  # nobody has estimated it
    )
    tables = [load_table(estimates), load_table(measured)]
    found = {each.workers: each for each in calibrated(merged(tables), tables).points}
    assert {size: each.flops_per_s for size, each in found.items()} == {
        1: 5.0,
        2: 10.0,
        4: 20.0,  # as near to 2 as to 8
        8: 60.0,
        16: 1.0,
        64: pytest.approx(480.0),
    }
    assert found[4].origin == "estimated"
    with pytest.raises(RecordError, match="nothing to calibrate by"):
        calibrated(tables[0], tables[:1])


def test_a_calibration_that_leads_to_no_rate_is_refused(tmp_path: Path) -> None:
    estimates = write(tmp_path / "e.json", point(1, 1e-20), point(2, 1e20))
    measured = write(tmp_path / "m.json", point(1, 1e20, "measured", iterations=3))
    tables = [load_table(estimates), load_table(measured)]
    with pytest.raises(RecordError, match="2 workers would be estimated at 1e\\+60"):
        calibrated(merged(tables), tables)


def test_merge_calibrates_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    estimates = write(tmp_path / "e.json", point(1, 10.0), point(2, 20.0))
    measured = write(tmp_path / "m.json", point(1, 5.0, "measured", iterations=3))
    words = [
        "profile",
        "merge",
        str(estimates),
        str(measured),
        "--output",
        str(tmp_path / "b.json"),
    ]
    assert main([*words, "--calibrate"]) == 0
    assert [p.flops_per_s for p in load_table(tmp_path / "b.json").points] == [5.0, 10.0]
    assert main([words[0], words[1], str(estimates), "--output", "c.json", "--calibrate"]) == 2
    assert "nothing to calibrate by" in capsys.readouterr().err


def test_whoever_reads_finds_a_whole_table_and_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", point(1, 1.0))
    other = load_table(write(tmp_path / "b.json", point(1, 2.0)))
    file.chmod(0o400)
    save_table(other, file)  # it is replaced, not written into
    assert load_table(file) == other
    (tmp_path / "d.json").mkdir()
    with pytest.raises(OSError, match=r"d\.json'"):
        save_table(other, tmp_path / "d.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "d.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("{", "not valid JSON"),
        ('{"version": 2, "title": "a", "points": [%s]}', "version: 2 is not known"),
        ('{"version": 1, "title": "a", "points": []}', "points"),
        ('{"version": 1, "title": "a", "points": [%s, %s]}', "points.1.workers: 1 is listed twice"),
        ('{"version": 1, "title": "a", "pints": [%s]}', "pints: unknown key"),
    ],
)
def test_bad_tables_are_one_clear_error(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text.replace("%s", json.dumps(point(1, 1.0))))
    with pytest.raises(RecordError, match=words) as caught:
        load_table(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"flops_per_s": -1.0}, "flops_per_s"),
        ({"workers": 3}, "makes 1 workers, not 3"),
        ({"origin": "guessed"}, "origin"),
        ({"layout": {"tp": 0}}, "layout.tp"),
    ],
)
def test_bad_points_are_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.json", {**point(1, 1.0), **change})
    with pytest.raises(RecordError, match=words):
        load_table(file)


def test_estimate_merge_and_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, both, png = tmp_path / "e.json", tmp_path / "both.json", tmp_path / "plot.png"
    arguments = ["profile", "estimate", "--model", "gpt3-1.3b", "--hardware", "a800-80g"]
    assert main([*arguments, "--workers", "8,16", "--output", str(table)]) == 0
    assert main([*arguments, "--workers", "8", "--output", str(table)]) == 2
    assert "exists already" in capsys.readouterr().err
    measured = point(16, 1e15, "measured", iterations=12)
    other = write(tmp_path / "m.json", measured)
    assert main(["profile", "merge", str(table), str(other), "--output", str(both)]) == 0
    assert main(["profile", "merge", str(table), "--output", str(both)]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert main(["profile", "show", str(both), "--png", str(png)]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert main(["profile", "show", str(both), "--png", str(png)]) == 2
    assert capsys.readouterr().err.endswith("plot.png: exists already; --force replaces it\n")
    assert main(["profile", "show", str(both), "--png", str(png), "--force"]) == 0
    assert main(["profile", "show", str(both)]) == 0
    printed = capsys.readouterr().out
    assert "measured" in printed
    assert "estimated" in printed
    assert main(["profile", "show", str(both), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"][1]["flops_per_s"] == 1e15


def test_wrong_paths_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    table = write(tmp_path / "a.json", point(1, 1.0))
    assert main(["profile", "show", str(table), "--png", str(tmp_path / "no" / "x.png")]) == 2
    error = capsys.readouterr().err
    assert "no such file" in error.lower()
    assert error.count("\n") == 1


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_plot_is_drawn_over_no_table_nor_a_table_written_as_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], force: list[str]
) -> None:
    table = write(tmp_path / "a.json", point(1, 1.0))
    before = table.read_bytes()
    assert main(["profile", "show", str(table), "--png", str(table), *force]) == 2
    assert capsys.readouterr().err.endswith("a.json: name it .png, as what is written there\n")
    assert table.read_bytes() == before
    png = tmp_path / "a.png"
    assert main(["profile", "merge", str(table), "--output", str(png), *force]) == 2
    assert capsys.readouterr().err.endswith("a.png: name it .json, as what is written there\n")


def test_a_title_is_drawn_as_it_is(tmp_path: Path) -> None:
    table = write(tmp_path / "a.json", point(1, 1.0), title="$x^$\x1b[31m")
    assert main(["profile", "show", str(table), "--png", str(tmp_path / "a.png")]) == 0


def test_a_table_of_another_name_is_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"a\.yaml: a table is a file named \.json or \.toml"):
        load_table(write(tmp_path / "a.yaml", point(1, 1.0)))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([], "points: [] must have 1 or more in it"),
        (
            [point(1, 1.0) | {"layout": 3}],
            "points.0.layout: 3 must have keys of its own; known: tp, pp, dp",
        ),
        ([point(10**400, 1.0)], "must be less than or equal to 10000000"),
        ([point(1, 1.0, iterations=10**400)], "must be less than or equal to 1000000000000"),
    ],
)
def test_a_mistake_in_a_table_is_told_in_plain_words(
    tmp_path: Path, points: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(RecordError) as caught:
        load_table(write(tmp_path / "a.json", *points))
    assert words in str(caught.value)


def test_a_number_of_too_many_digits_in_toml_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'title = "a"\nversion = {"9" * 5000}\n')
    with pytest.raises(RecordError, match=r"not valid TOML: line 2: a number of 5000 digits is"):
        load_table(path)
