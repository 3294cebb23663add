"""Finds which module writes each record of the core's state, from the syntax trees that mypy typed.

    python tools/record_writers.py           a table: each record and the modules that write it
    python tools/record_writers.py --writes  each write with its place

A *record* is a class that can be reached from the root class by its fields, and that is not frozen.
These are writes of a record, in the module where they stand:

- an assignment to its field, also augmented, as a loop's target, or by ``del``;
- a subscript store or a mutating method call on the container in its field;
- a call of a method that changes ``self``;
- passing the container to a function that changes its argument, or to unknown code;
- calling a *setter* of another module: a function that does nothing but store its arguments,
  or pass them to a setter.

A function that takes facts out of an event or of the turn is no setter: it decides which facts the
record keeps.

Names are followed to the record: a local name stands for the field it was taken from. A copy
(``copy.copy``, ``replace``, a list made of another list) is not the record.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mypy import nodes
from typed_code import Binding, Function, TypedCode, elements_of, is_copy, parts_of, walk

ROOT: Final = Path(__file__).parents[1]
CORE: Final = "controller.core"


def _words(text: str, prefix: str = "") -> frozenset[str]:
    return frozenset(f"{prefix}{word}" for word in text.split())


MUTATORS: Final = _words(
    "__delitem__ __setitem__ add append appendleft clear difference_update discard extend"
    " extendleft insert intersection_update pop popitem popleft remove reverse rotate setdefault"
    " sort subtract symmetric_difference_update update"
)
"""Methods of the standard containers that change them."""
VIEWS: Final = _words("get items keys setdefault values")
"""Methods that return a part of the container, not a copy."""
READERS: Final = _words(
    "all any bool dict enumerate filter frozenset id isinstance iter len list max min next repr"
    " reversed set sorted str sum tuple zip",
    "builtins.",
) | _words("copy.copy copy.deepcopy statistics.mean statistics.median")
"""Functions that leave their arguments as they are."""
READING_METHODS: Final = MUTATORS | _words(
    "difference fromkeys intersection isdisjoint issubset issuperset join union"
)
"""Methods that leave their arguments as they are, whatever they do to their own object."""
CHANGE_FIRST_ARGUMENT: Final = _words(
    "bisect.insort builtins.delattr builtins.setattr heapq.heapify heapq.heappop heapq.heappush"
    " random.shuffle"
)
CONTAINERS: Final = _words("dict list set", "builtins.") | _words(
    "defaultdict deque", "collections."
)
_MAX_DEPTH: Final = 8
"""Bindings that are followed from a name to the record."""


class Write(NamedTuple):
    """One write: the record's class, the field ("" for a changed ``self``), and the place."""

    record: str
    field: str
    module: str
    line: int
    how: str


class _Origin(NamedTuple):
    """What an expression stands for: a record or its field, or a part of a parameter."""

    record: str = ""
    field: str = ""
    parameter: int = -1


class Writers:
    """The writes of all records that can be reached from ``root``.

    Args:
        code: The code in which writes are looked for.
        root: Full name of the class that holds the whole state.

    Raises:
        ValueError: There is no class ``root``.
    """

    def __init__(self, code: TypedCode, root: str) -> None:
        self._code = code
        self.records = set(code.mutable_classes(root))
        self._writes: dict[str, set[Write]] = defaultdict(set)  # by the function's full name
        self._changed: dict[str, set[int]] = defaultdict(set)
        num_changed = -1
        while num_changed != (num := sum(map(len, self._changed.values()))):
            num_changed = num  # a function that changes its argument changes its callers' objects
            for function in code.functions.values():
                self._visit(function)

    @property
    def writes(self) -> list[Write]:
        """All writes, by record, field, module and line. The record of an ``Any`` is "?"."""
        found = {write for writes in self._writes.values() for write in writes}
        return sorted(found | set(self._setter_calls()))

    def modules_by_record(self) -> dict[str, set[str]]:
        """Return the modules that write each record."""
        modules: dict[str, set[str]] = {record: set() for record in self.records}
        for write in self.writes:
            modules.setdefault(write.record, set()).add(write.module)
        return modules

    def docstring(self, record: str) -> str:
        """Return the docstring of a record's class."""
        return self._code.classes[record].defn.docstring or ""

    # --- statements --------------------------------------------------------------------------

    def _visit(self, function: Function) -> None:
        for node in walk(function.tree.body):
            match node:
                case nodes.AssignmentStmt(lvalues=targets):
                    for target in targets:
                        self._store(function, target, "=")
                case nodes.OperatorAssignmentStmt(lvalue=target):
                    self._store(function, target, f"{node.op}=")
                    if self._code.classes_of(target) & CONTAINERS:
                        self._change(function, target, f"{node.op}=")
                case nodes.ForStmt(index=target):
                    self._store(function, target, "for")
                case nodes.DelStmt(expr=target):
                    self._store(function, target, "del")
                case nodes.MemberExpr(expr=owner, name=name) if name in MUTATORS:
                    self._change(function, owner, f".{name}")  # called here, or passed on
                case nodes.CallExpr():
                    self._call(function, node)
                case _:
                    pass

    def _call(self, function: Function, call: nodes.CallExpr) -> None:
        callee, called = call.callee, self._code.function_of(call)
        if called is None:
            if _changes_first_argument(callee):
                self._change(function, call.args[0], "passed to be changed")
            elif not _only_reads(callee):
                for argument in call.args:
                    if self._code.classes_of(argument) & CONTAINERS:
                        self._change(function, argument, "passed to unknown code")
            return
        changed, parameters = self._changed[called.name], called.parameters
        how = f"{called.tree.name}()"
        is_bound = isinstance(callee, nodes.MemberExpr) and called.has_self
        if isinstance(callee, nodes.MemberExpr) and is_bound and 0 in changed:
            self._change(function, callee.expr, f".{how}")
        for position, (argument, name) in enumerate(zip(call.args, call.arg_names, strict=True)):
            index = parameters.index(name) if name in parameters else position + is_bound
            if index in changed:
                self._change(function, argument, how)

    def _store(self, function: Function, target: nodes.Expression, how: str) -> None:
        match target:
            case nodes.TupleExpr(items=items):
                for item in items:
                    self._store(function, item, how)
            case nodes.StarExpr(expr=inner):
                self._store(function, inner, how)
            case nodes.IndexExpr(base=base):
                self._change(function, base, f"[] {how}")
            case nodes.MemberExpr(expr=nodes.NameExpr(name="self")) if function.has_self:
                self._changed[function.name].add(0)  # the callers of the method are the writers
            case nodes.MemberExpr(expr=owner, name=name):
                if not _is_copied(function, owner):
                    for record in self._code.classes_of(owner) & {*self.records, "?"}:
                        self._write(function, record, name, target.line, how)
            case _:
                pass

    def _change(self, function: Function, expression: nodes.Expression, how: str) -> None:
        """Note that the object that ``expression`` stands for is changed in place."""
        for origin in self._origins(function, expression):
            if origin.parameter >= 0:
                self._changed[function.name].add(origin.parameter)
            else:
                self._write(function, origin.record, origin.field, expression.line, how)

    def _write(self, function: Function, record: str, name: str, line: int, how: str) -> None:
        self._writes[function.name].add(Write(record, name, function.module, line, how))

    # --- what an expression stands for -------------------------------------------------------

    def _origins(
        self,
        function: Function,
        expression: nodes.Expression,
        depth: int = 0,
        *,
        is_element: bool = False,
    ) -> Iterator[_Origin]:
        """Yield what ``expression``, or each element of it, may stand for.

        Nothing is yielded for a new object. A new list of old objects holds old objects.
        """
        if depth > _MAX_DEPTH:
            return
        records = self._code.classes_of(expression) & self.records
        follow = [*parts_of(expression), *(elements_of(expression) if is_element else ())]
        match expression:
            case nodes.NameExpr(name="self") if function.has_self:
                yield _Origin(parameter=0)
            case nodes.MemberExpr(expr=nodes.NameExpr(name="self")) if function.has_self:
                yield _Origin(parameter=0)
            case _ if records:
                if not _is_copied(function, expression):
                    yield from map(_Origin, records)
                return
            case nodes.MemberExpr(expr=owner, name=name):
                owners = self._code.classes_of(owner) & self.records
                if owners and not _is_copied(function, owner):
                    yield from (_Origin(record, name) for record in owners)
                follow += [] if owners else [Binding(owner, is_element)]
            case nodes.NameExpr(name=name):
                follow += function.bindings.get(name, [])
                if name in function.parameters:
                    yield _Origin(parameter=function.parameters.index(name))
            case nodes.CallExpr(callee=nodes.MemberExpr(name=name, expr=owner)) if name in VIEWS:
                follow.append(Binding(owner, is_element))
            case nodes.CallExpr():
                yield from self._origins_of_call(expression, depth, is_element=is_element)
            case _:
                pass
        for value, is_part in follow:
            yield from self._origins(function, value, depth + 1, is_element=is_part or is_element)

    def _origins_of_call(
        self, call: nodes.CallExpr, depth: int, *, is_element: bool
    ) -> Iterator[_Origin]:
        called = self._code.function_of(call)
        if isinstance(call.callee, nodes.RefExpr) and call.callee.fullname == "builtins.getattr":
            yield from map(_Origin, self._code.classes_of(call.args[0]) & self.records)
        if called is not None:
            for returned in called.returned:
                origins = self._origins(called, returned, depth + 1, is_element=is_element)
                yield from (each for each in origins if each.parameter < 0)

    # --- setters -----------------------------------------------------------------------------

    def _setter_calls(self) -> Iterator[Write]:
        for caller in self._code.functions.values():
            for call in walk(caller.tree.body):
                called = self._code.function_of(call) if isinstance(call, nodes.CallExpr) else None
                if called is None or called.module == caller.module:
                    continue
                how = f"{called.tree.name}(), which only stores its arguments"
                for write in self._stored_by(called):
                    yield Write(write.record, write.field, caller.module, call.line, how)

    def _stored_by(self, function: Function, depth: int = 0) -> set[Write]:
        """Return the writes of a function that does nothing but store its arguments."""
        body = function.tree.body.body
        stored: set[Write] = set()
        for statement in body[1:] if function.tree.docstring else body:
            match statement:
                case nodes.ExpressionStmt(expr=nodes.CallExpr(args=arguments) as call) if (
                    (called := self._code.function_of(call)) is not None
                    and depth < _MAX_DEPTH
                    and _are_parameters(function, arguments)
                    and (forwarded := self._stored_by(called, depth + 1))
                ):
                    stored |= forwarded
                case _ if _stores(function, statement):
                    stored |= self._writes.get(function.name, set())
                case _:
                    return set()
        return stored


def _is_copied(function: Function, expression: nodes.Expression) -> bool:
    """Return whether ``expression`` is a local name for a copy that nothing else holds."""
    if not isinstance(expression, nodes.NameExpr):
        return False
    bound = function.bindings.get(expression.name, [])
    return bool(bound) and all(is_copy(each.value) and not each.is_element for each in bound)


def _changes_first_argument(callee: nodes.Expression) -> bool:
    if isinstance(callee, nodes.MemberExpr) and callee.name in {"__delattr__", "__setattr__"}:
        return True
    return isinstance(callee, nodes.RefExpr) and callee.fullname in CHANGE_FIRST_ARGUMENT


def _only_reads(callee: nodes.Expression) -> bool:
    """Return whether a function or method outside the code leaves its arguments as they are."""
    if isinstance(callee, nodes.RefExpr) and callee.fullname in READERS:
        return True
    return isinstance(callee, nodes.MemberExpr) and callee.name in READING_METHODS


def _stores(function: Function, statement: nodes.Statement) -> bool:
    """Return whether the statement only puts parameters, as they are, into fields."""
    match statement:
        case nodes.AssignmentStmt(
            lvalues=[nodes.MemberExpr() | nodes.IndexExpr() | nodes.TupleExpr()], rvalue=value
        ):
            values = value.items if isinstance(value, nodes.TupleExpr) else [value]
        case nodes.ExpressionStmt(
            expr=nodes.CallExpr(callee=nodes.MemberExpr(name=name), args=values)
        ) if name in MUTATORS:
            pass
        case _:
            return False
    return _are_parameters(function, values)


def _are_parameters(function: Function, values: list[nodes.Expression]) -> bool:
    """Return whether the values are parameters, or constants beside a parameter."""
    names = {each.name for each in values if isinstance(each, nodes.NameExpr)}
    others = names - {"None", "True", "False"}
    is_plain = all(isinstance(each, nodes.NameExpr) for each in values)
    return is_plain and bool(others) and others <= {*function.parameters}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--writes", action="store_true", help="list each write with its place")
    arguments = parser.parse_args()
    writers = core_writers()
    modules = writers.modules_by_record()
    for record in sorted(writers.records):
        print(f"{record.rpartition('.')[2]:20} {', '.join(sorted(modules[record]))}")
        for write in writers.writes if arguments.writes else ():
            if write.record == record:
                print(f"    {write.module}:{write.line}: {write.field} {write.how}")
    return 0


def core_writers() -> Writers:
    """Return the writes of the core's state, by all modules of the controller."""
    os.chdir(ROOT)  # mypy reads its settings relative to the present directory
    code = TypedCode(["controller"], "pyproject.toml")
    return Writers(code, f"{CORE}.state.cluster.ClusterState")


if __name__ == "__main__":
    sys.exit(main())
