"""Settings of the console: their precedence, their mistakes with a place, and clashes of keys."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from console.cli import main
from console.command_registry import COMMAND_BY_ID, COMMANDS
from console.configuration import (
    STYLES,
    ConsoleSettingError,
    ConsoleSettings,
    configuration_path,
    key_map,
    key_map_mistakes,
    read_configuration,
)
from console.themes.colours import THEMES


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def write(environment: Mapping[str, str], text: str) -> Path:
    path = configuration_path(environment)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def refused(environment: Mapping[str, str], **options: object) -> str:
    with pytest.raises(ConsoleSettingError) as caught:
        read_configuration(options, environment)
    return str(caught.value)


def test_without_a_file_all_is_default(environment: dict[str, str]) -> None:
    found = read_configuration({}, environment)
    assert found.settings == ConsoleSettings()
    assert {each.origin for each in found.origins} == {"default"}
    assert found.keys == {command.id: command.key for command in COMMANDS}


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    environment: dict[str, str],
) -> None:
    path = write(environment, "theme = 'light'\nascii = true\nkeymap = 'vim'\n")
    environment |= {"UNICRON_CONSOLE_THEME": "contrast", "UNICRON_CONSOLE_ASCII": "no"}
    found = read_configuration({"theme": "tritanopia"}, environment)
    assert found.settings.theme == "tritanopia"
    assert found.settings.ascii is False
    assert {each.name: each.origin for each in found.origins} == {
        "theme": "--theme", "ascii": "UNICRON_CONSOLE_ASCII", "keymap": f"{path}:3",
        "attention": "default", "mouse": "default", "keys": "default",
    }  # fmt: skip
    assert "ctrl+d" in found.keys["panel.page_down"]


def test_a_configuration_home_that_can_not_be_looked_into_has_no_file() -> None:
    found = read_configuration({}, {"XDG_CONFIG_HOME": f"/tmp/{'a' * 300}"})
    assert found.settings == ConsoleSettings()


def test_a_relative_configuration_home_is_ignored() -> None:
    assert configuration_path({"XDG_CONFIG_HOME": "here"}) == configuration_path({})


def test_each_theme_can_be_chosen(environment: dict[str, str]) -> None:
    for theme in THEMES:
        assert read_configuration({"theme": theme}, environment).settings.theme == theme


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("theme = 'bright'", ":1: theme = 'bright': must be 'dark', 'light'"),
        ("\nthem = 'dark'", ":2: unknown key them; did you mean 'theme'?"),
        ("ascii = 'yes'", ":1: ascii = 'yes': must be a valid boolean"),
        ("theme = ", ":1: "),
        ("[keys]\n'node.drian' = 'V'", ":2: unknown command 'node.drian'; did you mean 'node.drain'?"),
        ("[keys]\n'node.drain' = 'ctrl+d'", ":2: node.drain changes the cluster: its key must be"),
        ("[keys]\n'node.drain' = 'C'", ":2: C runs node.cordon and node.drain: give one of them"),
        ("[keys]\n'panel.next' = 'no key'", ":2: 'no key' is no key"),
        ("[keys]\n'plan.approve' = 'Y'", ":2: texts of the console name the key of plan.approve"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_file_and_line(
    environment: dict[str, str], text: str, expected: str
) -> None:
    path = write(environment, text)
    assert refused(environment).startswith(f"{path}{expected}")


def test_a_wrong_option_or_variable_is_named(environment: dict[str, str]) -> None:
    assert refused(environment, theme="bright").startswith("--theme: theme = 'bright'")
    environment["UNICRON_CONSOLE_KEYMAP"] = "emacs"
    assert refused(environment).startswith("UNICRON_CONSOLE_KEYMAP: keymap = 'emacs'")


def test_what_is_no_text_is_refused(environment: dict[str, str]) -> None:
    path = write(environment, "")
    path.write_bytes(b"theme = '\xff'")
    assert "is not UTF-8" in refused(environment)


@pytest.mark.parametrize("style", STYLES)
def test_the_styles_have_no_clash(style: str) -> None:
    assert list(key_map_mistakes(style, {})) == []


def test_keys_may_be_written_as_the_help_shows_them() -> None:
    own = {"panel.filter": "/, ^f", "panel.page_up": "pgup"}
    assert key_map("default", own)["panel.filter"] == "slash,ctrl+f"
    assert key_map("default", own)["panel.page_up"] == COMMAND_BY_ID["panel.page_up"].key


def test_the_settings_are_printed_with_their_origin(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(environment, "theme = 'light'\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", environment["XDG_CONFIG_HOME"])
    assert main(["config", "show", "--origin", "--keymap", "vim"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"# {path}", f'theme = "light"  # {path}:1', "ascii = false  # default",
        'keymap = "vim"  # --keymap', 'attention = "none"  # default', "mouse = true  # default", "keys = {}  # default",
    ]  # fmt: skip
    assert main(["config", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["theme"]["value"] == "light"


def test_the_keys_are_printed_with_the_names_of_their_commands(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(environment, "[keys]\n'node.drain' = 'V'\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", environment["XDG_CONFIG_HOME"])
    assert main(["config", "keys"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(COMMANDS)
    [drain] = [line for line in printed if line.startswith("node.drain ")]
    assert drain.split()[1] == "V"
    assert main(["config", "keys", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["node.drain"] == "V"


def test_a_wrong_file_ends_the_command(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(environment, "theme = 'bright'\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", environment["XDG_CONFIG_HOME"])
    with pytest.raises(SystemExit) as caught:
        main(["config", "show"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"{path}:1: theme = 'bright'")
