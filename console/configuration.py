"""The console's settings: options, environment, and a file in the user's configuration.

An option wins over the environment, and that over the file. ``unicron-console config show`` says
where each value comes from.

Commands have the registry's keys, then those of a style, then an operator's own. A key that two
commands share, an unknown command or key, and a small letter for a command that changes the cluster
are mistakes: all are named before the console starts.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from console.command_registry import COMMAND_BY_ID, Danger
from console.viewmodel.panels.key_bar import key_name
from controller.clusterfile.toml_document import TomlDocument, TomlError, read_toml
from profiles.key_mistakes import KeyMistake, key_mistakes, which_is_known
from profiles.records import is_there

ENVIRONMENT: Final = {
    "theme": "UNICRON_CONSOLE_THEME", "ascii": "UNICRON_CONSOLE_ASCII",
    "keymap": "UNICRON_CONSOLE_KEYMAP", "attention": "UNICRON_CONSOLE_ATTENTION",
    "mouse": "UNICRON_CONSOLE_MOUSE",
}  # fmt: skip
_SWITCHES: Final = frozenset({"ascii", "mouse"})
_TRUE: Final = frozenset({"1", "true", "yes"})

STYLES: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "vim": {"panel.page_up": "pageup,ctrl+u,ctrl+b", "panel.page_down": "pagedown,ctrl+d,ctrl+f"},
}
_FIXED: Final = frozenset({"app.mode", "app.help", "app.quit", "plan.approve", "plan.reject"})
"""Texts of the console name their keys."""
_SPELLINGS: Final = {
    "/": "slash",
    "?": "question_mark",
    "^": "ctrl+",
    "pgup": "pageup",
    "pgdn": "pagedown",
}
_KEY: Final = re.compile(r"[A-Za-z0-9]|(ctrl\+|shift\+|alt\+)?[a-z0-9_]+|f1?[0-9]")
_CAPITAL: Final = re.compile(r"[A-Z]")


class ConsoleSettings(BaseModel):
    """What an operator may choose for the console."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    theme: Literal["dark", "light", "contrast", "deuteranopia", "tritanopia"] = "dark"
    ascii: bool = False
    keymap: Literal["default", "vim"] = "default"
    attention: Literal["none", "bell", "osc9", "osc777"] = "none"
    mouse: bool = True
    keys: dict[str, str] = Field(default_factory=dict)


class ConsoleSettingError(Exception):
    """Settings can't be used. The text has one line for each mistake, with its place."""


class SettingOrigin(NamedTuple):
    """A setting, its value, and where it comes from."""

    name: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class ConsoleConfiguration:
    """The settings, and where each comes from."""

    settings: ConsoleSettings
    origins: list[SettingOrigin]
    path: Path

    @property
    def keys(self) -> dict[str, str]:
        """Keys of each command."""
        return key_map(self.settings.keymap, self.settings.keys)


def configuration_path(environment: Mapping[str, str]) -> Path:
    """Return where the user's file is, by the XDG base directory specification."""
    given = environment.get("XDG_CONFIG_HOME", "")
    # A relative path is to be ignored, says the specification.
    home = Path(given) if given.startswith("/") else Path.home() / ".config"
    return home / "unicron" / "console.toml"


def read_configuration(
    options: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> ConsoleConfiguration:
    """Return the settings.

    Args:
        options: Those of the command line that were given.
        environment: The process's own if None.

    Raises:
        ConsoleSettingError: The file can't be read, or a value is wrong.
    """
    environment = os.environ if environment is None else environment
    path = configuration_path(environment)
    document = _document_of(path)
    values: dict[str, Any] = dict(document.values) if document else {}
    origins = {
        name: f"{path}:{document.line_of((name,))}" for name in values if document is not None
    }
    for name, variable in ENVIRONMENT.items():
        if text := environment.get(variable, ""):
            values[name] = text.lower() in _TRUE if name in _SWITCHES else text
            origins[name] = variable
    for name, value in options.items():
        values[name], origins[name] = value, f"--{name}"
    settings = _checked(values, document, path, origins)
    found = [
        SettingOrigin(name, getattr(settings, name), origins.get(name, "default"))
        for name in ConsoleSettings.model_fields
    ]
    return ConsoleConfiguration(settings, found, path)


def _document_of(path: Path) -> TomlDocument | None:
    if not is_there(path):
        return None
    try:
        return read_toml(path)
    except TomlError as error:
        raise ConsoleSettingError(f"{path}:{error.line or 1}: {error}") from error


def _checked(
    values: Mapping[str, Any], document: TomlDocument | None, path: Path, origins: Mapping[str, str]
) -> ConsoleSettings:
    settings = None
    mistakes: list[KeyMistake] = []
    try:
        # By way of JSON, because pydantic is strict about types there.
        settings = ConsoleSettings.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        mistakes = key_mistakes(error, {"": list(ConsoleSettings.model_fields), "keys": []})
    if settings is not None:
        mistakes = list(key_map_mistakes(settings.keymap, settings.keys))
    if settings is None or mistakes:
        lines = (f"{_place(each, document, path, origins)}: {each.text}" for each in mistakes)
        raise ConsoleSettingError("\n".join(lines))
    return settings


def _place(
    mistake: KeyMistake, document: TomlDocument | None, path: Path, origins: Mapping[str, str]
) -> str:
    """Return file and line of a mistake, or the option or variable that has it."""
    name = str(mistake.location[0]) if mistake.location else ""
    origin = origins.get(name, "")
    if origin and not origin.startswith(f"{path}:"):
        return origin
    line = document.line_of(mistake.location) if document is not None else 1
    return f"{path}:{line}"


def key_map(style: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of each command, as Textual writes them; ``own`` wins over the style."""
    found = {name: command.key for name, command in COMMAND_BY_ID.items()}
    found |= STYLES[style]
    return found | {name: _as_textual(keys) for name, keys in own.items() if name in found}


def _as_textual(keys: str) -> str:
    parts = []
    for key in keys.split(","):
        text = key.strip()
        if len(text) > 1 and text.startswith("^"):
            text = f"ctrl+{text[1:]}"
        parts.append(_SPELLINGS.get(text, text))
    return ",".join(parts)


def key_map_mistakes(style: str, own: Mapping[str, str]) -> Iterator[KeyMistake]:
    """Yield what is wrong with an operator's own keys."""
    for name, keys in own.items():
        if text := _mistake_of(name, _as_textual(keys)):
            yield KeyMistake(("keys", name), text)
    taken: dict[str, str] = {}
    for name, keys in key_map(style, own).items():
        for key in keys.split(","):
            if key in taken and taken[key] != name:
                blamed = name if name in own else taken[key]
                text = f"{key_name(key)} runs {taken[key]} and {name}: give one of them another key"
                yield KeyMistake(("keys", blamed), text)
            taken[key] = name


def _mistake_of(name: str, keys: str) -> str:
    command = COMMAND_BY_ID.get(name)
    if command is None:
        return f"unknown command {name!r}; {which_is_known(name, list(COMMAND_BY_ID))}"
    if name in _FIXED:
        return f"texts of the console name the key of {name}: it can't be changed"
    for key in keys.split(","):
        if not _KEY.fullmatch(key):
            return f"{key!r} is no key: write for instance D, ctrl+d, f5, /"
        if command.danger is not Danger.NONE and not _CAPITAL.fullmatch(key):
            return (
                f"{name} changes the cluster: its key must be a capital letter, and {key} is none"
            )
    return ""
