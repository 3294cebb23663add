"""Reads a settings file: TOML with the sections ``[policy]`` and ``[failure_domains]``."""

import dataclasses
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from controller.core.rules.policy import Policy
from controller.core.rules.transitions import Step
from nodeagent.protocol.ids import NodeId
from profiles.key_mistakes import which_is_known

_SECTIONS: Final = ("policy", "failure_domains")
_SHORTEST_S: Final = 0.01
"""Between two of what is done again and again: a controller would do nothing else."""
_MOST: Final = 1e15
"""Far above every time and share; a whole number of TOML may be larger than any float."""


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


def load_failure_domains(path: Path, nodes: Collection[NodeId]) -> dict[NodeId, str]:
    """Return the domain of every node that the file names.

    Args:
        path: A TOML file. Without a ``[failure_domains]`` section there are no domains.
        nodes: The cluster's nodes.

    Raises:
        SettingsError: The file can't be read, a domain is not a list of nodes, or a node is unknown
            or in two domains.
    """
    domains: dict[NodeId, str] = {}
    for domain, members in read_section(path, "failure_domains").items():
        place = f"{path}: failure_domains.{domain}"
        if not domain:
            raise SettingsError(f"{place}: the name is empty; give the domain a name")
        if not isinstance(members, list):
            raise SettingsError(f"{place}: {members!r} must be a list of nodes")
        for node in members:
            if node not in nodes:
                raise SettingsError(f"{place}: no node {node!r}; nodes: {', '.join(nodes)}")
            if node in domains:
                raise SettingsError(
                    f"{place}: {node} is in {domains[node]} already; keep it in one domain"
                )
            domains[node] = domain
    return domains


_FIELDS: Final = {
    field.name: field for field in dataclasses.fields(Policy) if field.name != "approvals"
}
_MAY_BE_ZERO: Final = frozenset(
    {"auto_after_s", "held_retries", "max_recoveries", "storm_lost_share", "storm_plans"}
)
_SHARES: Final = frozenset({"storm_lost_share"})
_ABOVE_ONE: Final = frozenset({"stall_factor", "slow_factor", "late_factor", "spike_factor"})
_STEPS: Final = get_args(Step)


def load_policy(path: Path, *, is_auto_heal: bool | None = None) -> Policy:
    """Return the policy of a settings file.

    Args:
        path: A TOML file. Without a ``[policy]`` section every setting has its default.
        is_auto_heal: Overrides the file's ``is_auto_heal``, unless None.

    Raises:
        SettingsError: The file can't be read, or a key or value in it is wrong.
    """
    section = read_section(path, "policy")
    try:
        values = {key: checked_setting(key, value) for key, value in section.items()}
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
    if is_auto_heal is not None:
        values["is_auto_heal"] = is_auto_heal
    return Policy(**values)


def checked_setting(key: str, value: object) -> Any:  # noqa: ANN401 - of the field's type
    """Return the value of a setting, as ``Policy`` takes it.

    Raises:
        SettingsError: There is no such setting, or it can't have this value. The text names the
            key, and no file.
    """
    place = f"policy.{key}"
    if key not in _FIELDS:
        raise SettingsError(f"{place}: unknown key; {which_is_known(key, _FIELDS)}")
    if key == "step_s":
        return _checked_steps(place, value)
    default = _FIELDS[key].default
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise SettingsError(f"{place}: {value!r} must be true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{place}: {value!r} must be a number")
    if isinstance(default, int):
        least = 0 if key in _MAY_BE_ZERO else 1
        if not isinstance(value, int) or value < least:
            raise SettingsError(f"{place}: {value!r} must be a whole number of {least} or more")
        return value
    if key in _MAY_BE_ZERO and value == 0:
        return 0.0
    number = _positive(place, value)
    if key in _SHARES and number > 1:
        raise SettingsError(f"{place}: {value!r} must be a share, at most 1")
    if key.endswith("_interval_s") and number < _SHORTEST_S:
        raise SettingsError(f"{place}: {value!r} must be {_SHORTEST_S} or more")
    if key in _ABOVE_ONE and number <= 1:
        raise SettingsError(f"{place}: {value!r} must be above 1")
    return number


def _checked_steps(place: str, value: object) -> dict[str, float]:
    if not isinstance(value, dict) or not value.keys() <= set(_STEPS):
        raise SettingsError(f"{place}: must give seconds for some of {', '.join(_STEPS)}")
    given = {step: _positive(f"{place}.{step}", seconds) for step, seconds in value.items()}
    return {**Policy().step_s, **given}


def _positive(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{place}: {value!r} must be a number")
    if not 0 < value < _MOST:
        raise SettingsError(f"{place}: {value!r:.20} must be above 0 and below {_MOST:.0e}")
    return float(value)
