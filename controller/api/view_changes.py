"""What differs between two views, and the newer view made from the older one and that.

A view of 1,000 nodes is more than a megabyte of JSON, and little of it changes in a moment. So a
client that asks for it is sent one whole view, and after that only changes. Named entries of lists
are compared one by one (``_KEYS``), tables of losses number by number, all other fields whole.

    {"now": 12.5, "nodes": {"changed": {"17": {"heartbeat_at": 12.4}}}}

``changed`` has the place of an entry in the older list. ``order`` is there only if entries came,
left or moved: the places of those that are kept, and each new entry as a whole.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar, get_args, get_type_hints

from pydantic import JsonValue, TypeAdapter, ValidationError

from controller.api.views import ClusterView, NodeView, TaskView, View, WorkerView

Fields = dict[str, JsonValue]
Compared = View | WorkerView
"""What is compared field by field."""
ComparedT = TypeVar("ComparedT", bound=Compared)

_KEYS: Final[Mapping[type, Mapping[str, str]]] = {
    ClusterView: {"incidents": "id", "nodes": "node", "plans": "id", "tasks": "name"},
    NodeView: {"workers": "worker"},
}
"""By view: its lists that are compared entry by entry, and the field that names an entry."""
_NUMBERED: Final[Mapping[type, frozenset[str]]] = {TaskView: frozenset({"losses"})}
_AS_THEY_ARE: Final = (str, int, float, bool, type(None))
"""Types of values that are JSON already. Words of an enumeration are made to plain ones."""


_FEW_NODES: Final = 64
_MOSTLY: Final = 0.5
"""Share of new nodes from which on a whole view is faster: libraries in Rust make and read that."""
_LOSSES: Final = TypeAdapter(dict[int, float])


class ChangesError(ValueError):
    """Changes do not fit the view that they are said to change. The text names the place."""


def difference(old: Compared, new: Compared) -> Fields:
    """Return the fields of ``new`` that are not those of ``old``, as JSON values.

    What is the same object in both is not looked into.
    """
    kind: type = type(new)
    found, whole = Fields(), set[str]()
    keys, numbered, values_of = _KEYS.get(kind, {}), _NUMBERED.get(kind, ()), _values_of(kind)
    # Values, and no models in between: this is done ten times a second for every node that has
    # said something.
    for name, before, after in zip(_types(kind), values_of(old), values_of(new), strict=True):
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
        found.update(_adapter(kind).dump_python(new, mode="json", include=whole))
    return found


def is_mostly_new(old: ClusterView, new: ClusterView) -> bool:
    """Return whether to send and read the whole of ``new`` is faster than its difference."""
    num_kept = len({id(node) for node in old.nodes} & {id(node) for node in new.nodes})
    return len(new.nodes) - num_kept > max(_FEW_NODES, _MOSTLY * len(new.nodes))


def _list_difference(before: Sequence[Compared], after: Sequence[Compared], key: str) -> Fields:
    changed, name_of = Fields(), attrgetter(key)
    if len(before) == len(after):  # nearly always the same entries in the same order
        for place, (entry, other) in enumerate(zip(before, after, strict=True)):
            if entry is other:
                continue
            if name_of(entry) != name_of(other):
                break
            if fields := difference(entry, other):
                changed[str(place)] = fields
        else:
            return {"changed": changed} if changed else {}
    places = {name_of(each): place for place, each in enumerate(before)}
    order, changed = list[JsonValue](), {}
    for entry in after:
        known = places.get(name_of(entry))
        if known is None:
            kind: type = type(entry)
            order.append(_adapter(kind).dump_python(entry, mode="json"))
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


def applied(old: ComparedT, changes: Mapping[str, JsonValue]) -> ComparedT:
    """Return what ``old`` has become by ``changes``, which ``difference`` made.

    Unknown fields of a newer controller are ignored.

    Raises:
        ChangesError: ``changes`` are not those of ``old``.
    """
    kind: type = type(old)
    update = dict[str, Any]()
    for name, value in changes.items():
        if name not in _types(kind):
            continue
        try:
            if name in _KEYS.get(kind, ()):
                entry_type = get_args(_types(kind)[name])[0]
                update[name] = _with_list_change(getattr(old, name), value, entry_type)
            elif name in _NUMBERED.get(kind, ()):
                update[name] = _with_table_change(getattr(old, name), value)
            else:
                update[name] = _adapter(_types(kind)[name]).validate_python(value)
        except ChangesError as error:
            raise ChangesError(f"{name}.{error}") from error
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise ChangesError(f"{name}: {found[0]['msg']}") from error
        except (TypeError, ValueError) as error:
            raise ChangesError(f"{name}: {error}") from error
    return old.model_copy(update=update) if isinstance(old, View) else replace(old, **update)


def _with_list_change(old: Sequence[Compared], value: JsonValue, kind: type) -> list[Compared]:
    change = _table(value)
    changed = {int(place): _table(each) for place, each in _table(change.get("changed")).items()}
    order: Iterable[JsonValue] = range(len(old))
    if "order" in change:
        order = _list(change["order"])
    made = list[Compared]()
    for place in order:
        if not isinstance(place, int):
            made.append(_adapter(kind).validate_python(place))
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
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 (also a type like ``list[str]``)
    return TypeAdapter(kind)


@cache
def _types(kind: type) -> Mapping[str, Any]:
    """Return the type of each field, in their order."""
    if issubclass(kind, View):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return get_type_hints(kind)


@cache
def _values_of(kind: type) -> Callable[[Compared], tuple[Any, ...]]:
    """Return what reads the values of all fields; there are two at least."""
    return attrgetter(*_types(kind))
