"""Reads a settings file: TOML with the sections ``[policy]`` and ``[failure_domains]``."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_SECTIONS: Final = ("policy", "failure_domains")


class SettingsError(Exception):
    """A settings file can't be used. The text is one line that names file, key and mend."""


def read_section(path: Path, name: str) -> Mapping[str, Any]:
    """Return one section of a settings file; empty if the file does not have it.

    Raises:
        SettingsError: The file can't be read, or has an unknown section.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or 'unreadable').lower()}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error
    if unknown := sorted(document.keys() - set(_SECTIONS)):
        known = " and ".join(f"[{section}]" for section in _SECTIONS)
        raise SettingsError(f"{path}: unknown section [{unknown[0]}]; allowed: {known}")
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: {name} must be a section, [{name}]")
    return section
