"""Reads scenarios from TOML files, shipped or a user's own.

    title = "..."           optional if there is a base
    base = "trace-a"        optional: gives all values that this file does not give
    [paper]                 values from a publication
    nodes = 16
    [ours]                  values that we chose; the same keys are allowed
    days = 56.0

Every value is in one of the two sections, so every value has an origin. docs/simulation.md explains
the keys and the laws.
"""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Final

from controller.simulation.scenarios.fault_traces import load_trace
from controller.simulation.scenarios.scenario import Scenario, TracedFaults, Values
from profiles.records import RecordError, is_there, read_text, validated

_GROUPS: Final = frozenset({"detection", "steps", "baselines"})
"""Subsections. Each of their values has its own origin, and can come from the base."""

_LONGEST_DAYS: Final = 10_000.0


def shipped() -> tuple[str, ...]:
    """Return the names of the shipped scenarios."""
    folder = resources.files("controller.simulation").joinpath("scenarios")
    return tuple(
        sorted(
            file.name.removesuffix(".toml")
            for file in folder.iterdir()
            if file.name.endswith(".toml")
        )
    )


def load_scenario(name: str) -> Scenario:
    """Return a shipped scenario, or the scenario in a file.

    For a trace (``.json`` or ``.csv``) the scenario is ``trace-a`` with the trace's nodes and
    faults.

    Raises:
        RecordError: The file can't be read, or a value in it is wrong.
    """
    if name.endswith((".json", ".csv")):
        return _of_trace(Path(name))
    text, place, directory = _text_of(name)
    return parse_scenario(text, Path(name).stem, place, directory)


def parse_scenario(text: str, name: str, place: str, directory: str) -> Scenario:
    """Return the scenario in a TOML text.

    Args:
        text: The TOML text.
        name: The scenario's name.
        place: The file, for error messages.
        directory: The directory for relative paths in the scenario.

    Raises:
        RecordError: A value in the text is wrong.
    """
    title, merged, origins = _merged(text, place)
    values = validated(Values, merged, place)
    _check(values, place)
    return Scenario(
        name=name, title=title, values=values, origins=origins, directory=directory, place=place
    )


def _of_trace(path: Path) -> Scenario:
    load_trace(path.name, path.parent)
    base = load_scenario("trace-a")
    own = {"faults": TracedFaults(kind="trace", trace=path.name), "nodes": 0, "days": _LONGEST_DAYS}
    return Scenario(
        name=path.stem,
        title=f"the faults of {path.name}",
        values=base.values.model_copy(update=own),
        origins=base.origins | dict.fromkeys(own, "trace"),
        directory=str(path.parent),
        place=str(path),
    )


def _text_of(name: str) -> tuple[str, str, str]:
    """Return a scenario's text, its place for errors, and the directory of relative paths."""
    if name in shipped():
        file = resources.files("controller.simulation").joinpath("scenarios", f"{name}.toml")
        return file.read_text("utf-8"), f"{name}.toml", "."
    path = Path(name)
    if not path.suffix and not is_there(path):
        raise RecordError(f"{name:.80}: no such scenario; scenarios: {', '.join(shipped())}")
    return read_text(path), str(path), str(path.parent)


def _merged(text: str, place: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return title, values and origins; missing values come from the base, if there is one."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place}: not valid TOML: {error}") from error
    if not document:
        raise RecordError(f"{place}: is empty; give a title, and a base or all values")
    if unknown := sorted(document.keys() - {"title", "base", "paper", "ours"}):
        raise RecordError(f"{place}: {unknown[0]}: unknown key; known: title, base, paper, ours")
    title, base = document.get("title"), document.get("base")
    if title is None and isinstance(base, str):
        title = f"{base} with other values"
    if not isinstance(title, str):
        raise RecordError(
            f"{place}: title: must be a text in quotes; only a file with a base may leave it out"
        )
    own, origins = _sections(document, place)
    if base is None:
        return title, own, origins
    if base not in shipped():
        known = ", ".join(shipped())
        raise RecordError(f"{place}: base: {base!r:.80} must be a shipped scenario; known: {known}")
    _, values, inherited = _merged(*_text_of(base)[:2])
    for key in _GROUPS & own.keys() & values.keys():
        own[key] = values[key] | own[key]
    return title, values | own, inherited | origins


def _sections(document: dict[str, Any], place: str) -> tuple[dict[str, Any], dict[str, str]]:
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin in ("paper", "ours"):
        section = document.get(origin, {})
        if not isinstance(section, dict):
            raise RecordError(f"{place}: {origin}: must be a section, [{origin}]")
        for key, value in section.items():
            if key not in _GROUPS:
                _note_origin(origins, key, origin, place)
                merged[key] = value
                continue
            if not isinstance(value, dict):
                raise RecordError(
                    f"{place}: {key}: {value!r:.80} must be a section, [{origin}.{key}]"
                )
            for name in value:
                _note_origin(origins, f"{key}.{name}", origin, place)
            merged[key] = merged.get(key, {}) | value
    return merged, origins


def _note_origin(origins: dict[str, str], key: str, origin: str, place: str) -> None:
    if key in origins:
        raise RecordError(f"{place}: {key}: stands in [paper] and in [ours]; keep one")
    origins[key] = origin


def _check(values: Values, place: str) -> None:
    seen: set[str] = set()
    for number, task in enumerate(values.tasks):
        if task.name in seen:
            raise RecordError(f"{place}: tasks.{number}.name: {task.name!r} names two tasks")
        seen.add(task.name)
    if values.healthy_nodes and not isinstance(values.faults, TracedFaults):
        raise RecordError(f"{place}: healthy_nodes: is for traces; add these nodes to nodes")
    if not values.nodes and not isinstance(values.faults, TracedFaults):
        raise RecordError(
            f"{place}: nodes: must be 1 or more, unless the nodes are those of a trace"
        )
