"""Which keys run which commands: the registry's, those of a style, and an operator's own.

A key that two commands share, an unknown command or key, and a small letter for a command that
changes the cluster are mistakes: all are named before the console starts.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from console.command_registry import COMMAND_BY_ID, Danger
from console.viewmodel.panels.key_bar import key_name
from profiles.key_mistakes import KeyMistake, which_is_known

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
