"""Scenarios in files, TOML, and those that are shipped.

    title = "..."
    base = "trace-a"        whatever is not given below is as in that scenario; may be left out
    [paper]                 what a publication gives
    nodes = 16
    [ours]                  what we have chosen, of the same keys
    days = 56.0

Every value stands in one of the two sections, so that none is without its origin. Keys and laws are told
in docs/simulation.md.
"""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Final

from controller.simulation.scenarios.fault_traces import load_trace
from controller.simulation.scenarios.scenario import Scenario, TracedFaults, Values
from profiles.records import RecordError, is_there, read_text, validated

_GROUPS: Final = frozenset({"detection", "steps", "baselines"})
"""Sections of a section: each value in them has an origin, and a base, of its own."""

_LONGEST_DAYS: Final = 10_000.0


def shipped() -> tuple[str, ...]:
    """Return the names of the scenarios that come with the product."""
    folder = resources.files("controller.simulation").joinpath("scenarios")
    return tuple(
        sorted(
            file.name.removesuffix(".toml")
            for file in folder.iterdir()
            if file.name.endswith(".toml")
        )
    )


def load_scenario(name: str) -> Scenario:
    """Return a shipped scenario, or that of a file.

    A trace, ``.json`` or ``.csv``, stands for ``trace-a`` with what happens in it, to its end.

    Raises:
        RecordError: It can't be read, or something in it is wrong.
    """
    if name.endswith((".json", ".csv")):
        return _of_trace(Path(name))
    text, place, directory = _text_of(name)
    return parse_scenario(text, Path(name).stem, place, directory)


def parse_scenario(text: str, name: str, place: str, directory: str) -> Scenario:
    """Return the scenario that a TOML text stands for.

    Args:
        text: The text.
        name: What the scenario is called.
        place: Where the text stands, for errors.
        directory: What files that it names are relative to.

    Raises:
        RecordError: Something in it is wrong.
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
    """Return the text of a scenario, where it stands, and what it is relative to."""
    if name in shipped():
        file = resources.files("controller.simulation").joinpath("scenarios", f"{name}.toml")
        return file.read_text("utf-8"), f"{name}.toml", "."
    path = Path(name)
    if not path.suffix and not is_there(path):
        raise RecordError(f"{name:.80}: no such scenario; there are {', '.join(shipped())}")
    return read_text(path), str(path), str(path.parent)


def _merged(text: str, place: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return title, values and origins; what is not given is that of the base, if there is one."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place}: not valid TOML: {error}") from error
    if not document:
        raise RecordError(f"{place}: is empty; give a title, and a base or all values")
    if unknown := sorted(document.keys() - {"title", "base", "paper", "ours"}):
        raise RecordError(f"{place}: {unknown[0]}: unknown key; known: title, base, paper, ours")
    title, base = document.get("title"), document.get("base")
    if not isinstance(title, str):
        raise RecordError(f"{place}: title: must be a text")
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
    if not values.nodes and not isinstance(values.faults, TracedFaults):
        raise RecordError(
            f"{place}: nodes: must be 1 or more, unless the nodes are those of a trace"
        )
