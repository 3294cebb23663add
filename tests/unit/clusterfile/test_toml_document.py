"""Lines of keys, for every way in which TOML can write them."""

from pathlib import Path

import pytest

from controller.clusterfile.toml_document import TomlError, read_toml

_TEXT = '''\
plain = 1
a.b = 2
"quoted # key" = { inner = 3, list = [{ x = 1 }, { y = 2 }] }
text = """
fake = 1
"""

[[nodes]]
hosts = "a"
[nodes.labels]
z = "1"

[[nodes]] # the second
hosts = [
    "b", # a comment
    "c",
]
[[nodes.deep]]
k = 1
[table."with.dot"]
key = 1
'''


def test_every_key_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(_TEXT)
    document = read_toml(tmp_path / "f.toml")
    assert document.lines == {
        ("plain",): 1,
        ("a",): 2, ("a", "b"): 2,
        ("quoted # key",): 3, ("quoted # key", "inner"): 3, ("quoted # key", "list"): 3,
        ("quoted # key", "list", 0): 3, ("quoted # key", "list", 0, "x"): 3,
        ("quoted # key", "list", 1): 3, ("quoted # key", "list", 1, "y"): 3,
        ("text",): 4,
        ("nodes",): 8, ("nodes", 0): 8, ("nodes", 0, "hosts"): 9,
        ("nodes", 0, "labels"): 10, ("nodes", 0, "labels", "z"): 11,
        ("nodes", 1): 13, ("nodes", 1, "hosts"): 14, ("nodes", 1, "hosts", 0): 15,
        ("nodes", 1, "hosts", 1): 16, ("nodes", 1, "deep"): 18, ("nodes", 1, "deep", 0): 18,
        ("nodes", 1, "deep", 0, "k"): 19,
        ("table", "with.dot"): 20, ("table", "with.dot", "key"): 21,
    }  # fmt: skip


def test_a_key_that_is_missing_has_the_line_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(_TEXT)
    document = read_toml(tmp_path / "f.toml")
    assert document.line_of(("nodes", 1, "gpus")) == 13
    assert document.line_of(("nodes", 1), "hosts = 'x' is wrong") == 14
    assert document.line_of(("nowhere",)) == 1


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"a = 1\nb = \n", 2, "not valid TOML"),
        (b"a = 1\na = 2\n", 2, "not valid TOML"),
        (b"a = [1,\n", 1, "not valid TOML"),
        (b"a = 1\nb = '\xff'\n", 2, "is not UTF-8 (byte 0xff)"),
        (b"a = 1\nb = " + b"9" * 5000, 2, "digits"),
        (b"a = " + b"[" * 100_000, 0, "nested too deep"),
    ],
)
def test_what_is_no_toml_names_its_line(
    tmp_path: Path, content: bytes, line: int, words: str
) -> None:
    (tmp_path / "f.toml").write_bytes(content)
    with pytest.raises(TomlError) as refused:
        read_toml(tmp_path / "f.toml")
    assert words in str(refused.value)
    assert refused.value.line == line


def test_a_directory_and_a_device_are_no_files(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(TomlError, match="is not a file"):
            read_toml(path)
