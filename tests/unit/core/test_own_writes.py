"""Only a record's own methods assign its fields; the syntax tree shows it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[3] / "controller" / "core"
MUTATORS = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "insert"),
    *("intersection_update", "pop", "popitem", "popleft", "remove", "reverse", "setdefault"),
    *("sort", "update"),
}
"""Methods of the standard containers that change them."""


def foreign_writes(code: ast.AST, fields: frozenset[str]) -> Iterator[str]:
    """Yield each write of one of ``fields``, or to the container in it, but for ``self``'s own."""
    for node in ast.walk(code):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case (
                ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target)
            ):
                targets = [target]
            case ast.Call(func=ast.Attribute(attr=name, value=owner)) if name in MUTATORS:
                held = _without_index(owner)
                is_field = isinstance(held, ast.Attribute) and held.attr in fields
                targets = [held] if is_field else []
            case ast.Call(func=ast.Name("setattr") | ast.Attribute(attr="__setattr__")):
                targets = []
                yield ast.unparse(node)
            case _:
                continue
        parts = [part for target in targets for part in ast.walk(target)]
        for part in parts:
            if not isinstance(part, ast.expr):
                continue
            written = _without_index(part)
            is_target = part in targets or isinstance(
                getattr(part, "ctx", None), ast.Store | ast.Del
            )
            if not is_target or not isinstance(written, ast.Attribute):
                continue
            is_own = isinstance(written.value, ast.Name) and written.value.id == "self"
            if written.attr in fields and not is_own:
                yield ast.unparse(node)


def _without_index(expression: ast.expr) -> ast.expr:
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    return expression


def fields_of_records() -> frozenset[str]:
    """Return the names of the fields of everything that the state is made of."""
    return frozenset(
        statement.target.id
        for path in (CORE / "state").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    )


def test_no_module_writes_the_records_of_another() -> None:
    fields = fields_of_records()
    assert len(fields) > 150, "the records were not found"
    trees = {path: ast.parse(path.read_text()) for path in CORE.rglob("*.py")}
    found = {path: list(foreign_writes(tree, fields)) for path, tree in trees.items()}
    assert {path: writes for path, writes in found.items() if writes} == {}


@pytest.mark.parametrize(
    "statement",
    [
        "task.ranks = {}",
        "task.num += 1",
        "task.num: int = 1",
        "task.num, other = 1, 2",
        "for task.num in range(3): pass",
        "del task.ranks",
        "task.ranks[0] = 1",
        "del task.ranks[0]",
        "task.ranks.pop(0)",
        "task.leaving.ranks.clear()",
        "task.lists[0].append(1)",
        "self.leaving.num = 1",
        "setattr(task, 'num', 1)",
        "object.__setattr__(task, 'num', 1)",
    ],
)
def test_a_write_is_found(statement: str) -> None:
    assert len(set(foreign_writes(ast.parse(statement), frozenset({"ranks", "lists", "num"})))) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "self.num = 1",
        "self.ranks[task.num] = 1",
        "self.ranks.clear()",
        "num = task.num",
        "found[task.num] = 1",
        "names.append(task.num)",
        "task.note(1)",
    ],
)
def test_a_read_and_an_own_write_are_not(statement: str) -> None:
    assert list(foreign_writes(ast.parse(statement), frozenset({"ranks", "num"}))) == []
