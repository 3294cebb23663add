"""What differs between two views, and the newer view made from the older one and that.

A view of 1,000 nodes is more than a megabyte of JSON, and little of it changes in a moment. So a
client that asks for it is sent one whole view, and after that only changes. Named entries of lists
are compared one by one (``_KEYS``), tables of losses number by number, all other fields whole.

    {"now": 12.5, "nodes": {"changed": {"17": {"heartbeat_at": 12.4}}}}

``changed`` has the place of an entry in the older list. ``order`` is there only if entries came,
left or moved: the places of those that are kept, and each new entry as a whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar, get_args

from pydantic import JsonValue, TypeAdapter, ValidationError

from controller.api.views import ClusterView, NodeView, TaskView, View

Fields = dict[str, JsonValue]
ViewT = TypeVar("ViewT", bound=View)

_KEYS: Final[Mapping[type[View], Mapping[str, str]]] = {
    ClusterView: {"incidents": "id", "nodes": "node", "plans": "id", "tasks": "name"},
    NodeView: {"workers": "worker"},
}
"""By view: its lists that are compared entry by entry, and the field that names an entry."""
_NUMBERED: Final[Mapping[type[View], frozenset[str]]] = {TaskView: frozenset({"losses"})}
_AS_THEY_ARE: Final = (str, int, float, bool, type(None))
"""Types of values that are JSON already. Words of an enumeration are made to plain ones."""


_FEW_NODES: Final = 64
_MOSTLY: Final = 0.5
"""Share of new nodes from which on a whole view is faster: libraries in Rust make and read that."""
_LOSSES: Final = TypeAdapter(dict[int, float])


class ChangesError(ValueError):
    """Changes do not fit the view that they are said to change. The text names the place."""


def difference(old: View, new: View) -> Fields:
    """Return the fields of ``new`` that are not those of ``old``, as JSON values.

    What is the same object in both is not looked into.
    """
    kind, found, whole = type(new), Fields(), set[str]()
    keys, numbered, known = _KEYS.get(kind, {}), _NUMBERED.get(kind, ()), old.__dict__
    # ``__dict__``, and no models in between: this is done ten times a second for every node that
    # has said something.
    for name, after in new.__dict__.items():
        before = known[name]
        if before is after:
            continue
        if name in keys:
            change: JsonValue = _list_difference(before, after, keys[name])
            if change:
                found[name] = change
        elif name in numbered:
            if change := _table_difference(before, after):
                found[name] = change
        elif before != after:
            if type(after) in _AS_THEY_ARE:
                found[name] = after
            else:
                whole.add(name)
    if whole:
        found.update(new.model_dump(mode="json", include=whole))
    return found


def is_mostly_new(old: ClusterView, new: ClusterView) -> bool:
    """Return whether to send and read the whole of ``new`` is faster than its difference."""
    num_kept = len({id(node) for node in old.nodes} & {id(node) for node in new.nodes})
    return len(new.nodes) - num_kept > max(_FEW_NODES, _MOSTLY * len(new.nodes))


def _list_difference(before: Sequence[View], after: Sequence[View], key: str) -> Fields:
    changed = Fields()
    if len(before) == len(after):  # nearly always the same entries in the same order
        for place, (entry, other) in enumerate(zip(before, after, strict=True)):
            if entry is other:
                continue
            if entry.__dict__[key] != other.__dict__[key]:
                break
            if fields := difference(entry, other):
                changed[str(place)] = fields
        else:
            return {"changed": changed} if changed else {}
    places = {each.__dict__[key]: place for place, each in enumerate(before)}
    order, changed = list[JsonValue](), {}
    for entry in after:
        known = places.get(entry.__dict__[key])
        if known is None:
            order.append(entry.model_dump(mode="json"))
            continue
        order.append(known)
        if before[known] is not entry and (fields := difference(before[known], entry)):
            changed[str(known)] = fields
    found: Fields = {"changed": changed} if changed else {}
    if order != list(range(len(before))):
        found["order"] = order
    return found


def _table_difference(before: Mapping[int, float], after: Mapping[int, float]) -> Fields:
    found = Fields()
    if changed := {str(n): one for n, one in after.items() if before.get(n) != one}:
        found["changed"] = dict[str, JsonValue](changed)
    if gone := [number for number in before if number not in after]:
        found["gone"] = list[JsonValue](gone)
    return found


def applied(old: ViewT, fields: Mapping[str, JsonValue]) -> ViewT:
    """Return the view that ``old`` has become by ``fields``, which ``difference`` made.

    Unknown fields of a newer controller are ignored.

    Raises:
        ChangesError: ``fields`` are not changes of ``old``.
    """
    kind, update = type(old), dict[str, Any]()
    for name, value in fields.items():
        if name not in kind.model_fields:
            continue
        try:
            if name in _KEYS.get(kind, ()):
                update[name] = _with_list_change(getattr(old, name), value, _entry_type(kind, name))
            elif name in _NUMBERED.get(kind, ()):
                update[name] = _with_table_change(getattr(old, name), value)
            else:
                update[name] = _adapter(kind, name).validate_python(value)
        except ChangesError as error:
            raise ChangesError(f"{name}.{error}") from error
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise ChangesError(f"{name}: {found[0]['msg']}") from error
        except (TypeError, ValueError) as error:
            raise ChangesError(f"{name}: {error}") from error
    return old.model_copy(update=update)


def _with_list_change(old: Sequence[View], value: JsonValue, kind: type[View]) -> list[View]:
    change = _table(value)
    changed = {
        int(place): _table(fields) for place, fields in _table(change.get("changed")).items()
    }
    order: Iterable[JsonValue] = range(len(old))
    if "order" in change:
        order = _list(change["order"])
    made = list[View]()
    for place in order:
        if not isinstance(place, int):
            made.append(kind.model_validate(place))
        elif not 0 <= place < len(old):
            raise ChangesError(f"{place}: there are {len(old)} entries")
        elif place in changed:
            made.append(applied(old[place], changed[place]))
        else:
            made.append(old[place])
    return made


def _with_table_change(old: Mapping[int, float], value: JsonValue) -> dict[int, float]:
    change = _table(value)
    gone = set(_list(change.get("gone")))
    changed = _LOSSES.validate_python(_table(change.get("changed")))
    return {number: one for number, one in old.items() if number not in gone} | changed


def _table(value: JsonValue) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict | None):
        raise TypeError(f"{type(value).__name__} is no table")
    return value or {}


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list | None):
        raise TypeError(f"{type(value).__name__} is no list")
    return value or []


@cache
def _adapter(kind: type[View], name: str) -> TypeAdapter[Any]:
    annotation: Any = kind.model_fields[name].annotation
    return TypeAdapter(annotation)


@cache
def _entry_type(kind: type[View], name: str) -> type[View]:
    found: type[View] = get_args(kind.model_fields[name].annotation)[0]
    return found
