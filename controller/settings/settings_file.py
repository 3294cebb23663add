"""A settings file as a whole: TOML, and which sections it may have."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_SECTIONS: Final = ("policy", "failure_domains")


class SettingsError(Exception):
    """A settings file can't be used. The text is one line and names file, key and mend."""


def read_section(path: Path, name: str) -> Mapping[str, Any]:
    """Return one section of a settings file; empty where it is not there.

    Raises:
        SettingsError: The file can't be read, or has a section that there is not.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or 'unreadable').lower()}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error
    if unknown := sorted(document.keys() - set(_SECTIONS)):
        known = " and ".join(f"[{section}]" for section in _SECTIONS)
        raise SettingsError(f"{path}: unknown section [{unknown[0]}]; there are {known}")
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: {name} must be a section, [{name}]")
    return section
