"""Source code as mypy has read it: typed syntax trees of all functions, for tools that check it.

mypy's own visitors can't be subclassed from Python, so ``walk`` goes through the trees.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from mypy import build, nodes, types
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.options import Options

_REFERENCES: Final = frozenset({"node", "type", "types", "analyzed", "info"})
"""Attributes of syntax trees that lead to another place in the code."""

ITERATORS: Final = frozenset(
    f"builtins.{name}"
    for name in ["enumerate", "filter", "iter", "list", "reversed", "sorted", "tuple", "zip"]
)
"""Functions that return a new iterable of the elements of their arguments."""


class Binding(NamedTuple):
    """A value of a local name: an expression, or each element of it."""

    value: nodes.Expression
    is_element: bool


@dataclass(slots=True)
class Function:
    """One function or method.

    Attributes:
        module: Full name of its module.
        tree: Its syntax tree.
        owner: Full name of its class; empty for a function of the module.
        bindings: For each local name what it is bound to.
    """

    module: str
    tree: nodes.FuncDef
    owner: str
    bindings: dict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))

    @property
    def name(self) -> str:
        """Its full name."""
        return self.tree.fullname

    @property
    def has_self(self) -> bool:
        """Whether its first parameter is the object."""
        return bool(self.owner) and not self.tree.is_static

    @property
    def parameters(self) -> list[str]:
        """Names of its parameters, in order."""
        return [argument.variable.name for argument in self.tree.arguments]

    @property
    def returned(self) -> list[nodes.Expression]:
        """The expressions that it returns."""
        found = (node for node in walk(self.tree.body) if isinstance(node, nodes.ReturnStmt))
        return [node.expr for node in found if node.expr is not None]


class TypedCode:
    """The functions and classes of some folders, with the types of their expressions.

    Args:
        paths: Folders of source code, relative to the present directory.
        config: A mypy configuration file; None for mypy's defaults.

    Raises:
        ValueError: mypy finds errors in the code.
    """

    def __init__(self, paths: Iterable[str], config: str | None = None) -> None:
        options = Options()
        if config is not None:
            parse_config_file(options, lambda: None, config, sys.stdout, sys.stderr)
        options.export_types = options.preserve_asts = options.include_docstrings = True
        options.incremental, options.cache_dir = False, "/dev/null"  # a cache holds no trees
        built = build.build(create_source_list(list(paths), options), options)
        if built.errors:
            raise ValueError("\n".join(built.errors[:5]))
        self._types: Mapping[nodes.Expression, types.Type] = built.types
        self.classes: dict[str, nodes.TypeInfo] = {}
        self.functions: dict[str, Function] = {}
        packages = {Path(path).parts[0] for path in paths}
        for name, tree in built.files.items():
            if name.split(".")[0] in packages:
                self._collect(name, tree.names)
        for function in self.functions.values():
            _bind(function)

    def _collect(self, module: str, names: nodes.SymbolTable, owner: str = "") -> None:
        for symbol in names.values():
            node = symbol.node
            if isinstance(node, nodes.Decorator):
                node = node.func
            if isinstance(node, nodes.TypeInfo) and node.module_name == module:
                if node.fullname not in self.classes:
                    self.classes[node.fullname] = node
                    self._collect(module, node.names, node.fullname)
            elif isinstance(node, nodes.FuncDef) and node.fullname.startswith(f"{module}."):
                self.functions[node.fullname] = Function(module, node, owner)

    def mutable_classes(self, root: str) -> Iterator[str]:
        """Yield the full names of classes that ``root`` reaches by fields, without frozen ones.

        Raises:
            ValueError: There is no class ``root``.
        """
        if root not in self.classes:
            raise ValueError(f"no class {root}")
        seen: set[str] = set()
        waiting = [self.classes[root]]
        while waiting:
            info = waiting.pop()
            if info.fullname in seen:
                continue
            seen.add(info.fullname)
            if not _is_frozen(info):
                yield info.fullname
            for symbol in info.names.values():
                if isinstance(symbol.node, nodes.Var) and symbol.node.type is not None:
                    waiting += self._classes_in(symbol.node.type)

    def _classes_in(self, kind: types.Type) -> list[nodes.TypeInfo]:
        kind = types.get_proper_type(kind)
        if isinstance(kind, types.UnionType):
            return [info for item in kind.items for info in self._classes_in(item)]
        if isinstance(kind, types.TupleType):
            return [info for item in kind.items for info in self._classes_in(item)]
        if isinstance(kind, types.Instance):
            own = [kind.type] if kind.type.fullname in self.classes else []
            return own + [info for item in kind.args for info in self._classes_in(item)]
        return []

    def classes_of(self, expression: nodes.Expression) -> set[str]:
        """Return the full names of the classes that the expression may have; "?" for Any."""
        known = self._types.get(expression)
        return set() if known is None else set(_class_names(known))

    def function_of(self, call: nodes.CallExpr) -> Function | None:
        """Return the called function, if it is one of the code."""
        callee = call.callee
        if isinstance(callee, nodes.RefExpr) and callee.fullname in self.functions:
            return self.functions[callee.fullname]
        if isinstance(callee, nodes.MemberExpr):
            infos = [self.classes[name] for name in self.classes_of(callee.expr) & {*self.classes}]
            for base in (base for info in infos for base in info.mro):
                if f"{base.fullname}.{callee.name}" in self.functions:
                    return self.functions[f"{base.fullname}.{callee.name}"]
        return None


def walk(node: object) -> Iterator[nodes.Node]:
    """Yield the statements and expressions below ``node``, itself included."""
    if isinstance(node, list | tuple):
        for each in node:
            yield from walk(each)
    elif isinstance(node, nodes.Statement | nodes.Expression | nodes.Block):
        yield node
        for name in (*getattr(node, "__match_args__", ()), "rvalue"):
            if name not in _REFERENCES:
                yield from walk(getattr(node, name, None))


def parts_of(expression: nodes.Expression) -> list[Binding]:
    """Return expressions that may be the value of ``expression``, or contain it."""
    match expression:
        case nodes.IndexExpr(base=base):
            return [] if isinstance(expression.index, nodes.SliceExpr) else [Binding(base, True)]
        case nodes.ConditionalExpr(if_expr=yes, else_expr=no):
            return [Binding(yes, False), Binding(no, False)]
        case nodes.OpExpr(op="or" | "and", left=left, right=right):
            return [Binding(left, False), Binding(right, False)]
        case nodes.AssignmentExpr(value=value) | nodes.AwaitExpr(expr=value):
            return [Binding(value, False)]
        case nodes.CallExpr(callee=nodes.RefExpr(fullname="builtins.next"), args=args):
            return [Binding(each, True) for each in args]
        case _:
            return []


def elements_of(expression: nodes.Expression) -> list[Binding]:
    """Return expressions that may be an element of ``expression``, or contain one."""
    match expression:
        case nodes.TupleExpr(items=items) | nodes.ListExpr(items=items):
            return [Binding(each, False) for each in items]
        case nodes.DictExpr(items=pairs):
            return [Binding(value, False) for _, value in pairs]
        case nodes.ListComprehension(generator=generator):
            return [Binding(generator.left_expr, False)]
        case nodes.GeneratorExpr(left_expr=value):
            return [Binding(value, False)]
        case nodes.CallExpr(callee=nodes.RefExpr(fullname=name), args=args) if name in ITERATORS:
            return [Binding(each, True) for each in args]
        case _:
            return []


def is_copy(expression: nodes.Expression) -> bool:
    """Return whether the value is a copy that nothing else holds."""
    return (
        isinstance(expression, nodes.CallExpr)
        and isinstance(expression.callee, nodes.RefExpr)
        and expression.callee.fullname in {"copy.copy", "copy.deepcopy", "dataclasses.replace"}
    )


def _bind(function: Function) -> None:
    """Collect for each local name the expressions that it is bound to."""
    for node in walk(function.tree.body):
        match node:
            case nodes.AssignmentStmt(lvalues=targets, rvalue=value):
                for target in targets:
                    _bind_one(function, target, value)
            case nodes.AssignmentExpr(target=target, value=value):
                _bind_one(function, target, value)
            case nodes.ForStmt(index=target, expr=value):
                _bind_one(function, target, value, is_element=True)
            case nodes.GeneratorExpr() | nodes.DictionaryComprehension():
                for index, sequence in zip(node.indices, node.sequences, strict=True):
                    _bind_one(function, index, sequence, is_element=True)
            case _:
                pass


def _bind_one(
    function: Function,
    target: nodes.Expression,
    value: nodes.Expression,
    *,
    is_element: bool = False,
) -> None:
    match target:
        case nodes.NameExpr(name=name):
            function.bindings[name].append(Binding(value, is_element))
        case nodes.TupleExpr(items=items) | nodes.ListExpr(items=items):
            is_pairwise = (
                not is_element
                and isinstance(value, nodes.TupleExpr)
                and len(value.items) == len(items)
            )
            for index, item in enumerate(items):
                if is_pairwise and isinstance(value, nodes.TupleExpr):
                    _bind_one(function, item, value.items[index])
                else:
                    _bind_one(function, item, value, is_element=True)
        case _:
            pass


def _class_names(kind: types.Type) -> Iterator[str]:
    kind = types.get_proper_type(kind)
    if isinstance(kind, types.UnionType):
        for item in kind.relevant_items():
            yield from _class_names(item)
    elif isinstance(kind, types.Instance):
        yield kind.type.fullname
    elif isinstance(kind, types.AnyType):
        yield "?"


def _is_frozen(info: nodes.TypeInfo) -> bool:
    if info.is_enum or info.is_named_tuple or info.is_protocol:
        return True
    if "pydantic.main.BaseModel" in {base.fullname for base in info.mro}:
        return True  # messages; all of them are frozen
    fields = info.metadata.get("dataclass", {})
    return bool(fields.get("frozen"))
