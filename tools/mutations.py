"""Single-point changes of a Python file, as a tired programmer would make them by mistake.

Left alone are annotations, texts, messages of errors, assertions, decorators, and tolerances below TOLERANCE.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

TOLERANCE = 1e-5
"""A number below it guards a division or ends a search: twice as much is as good."""
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
PAIRS = (
    ("mean", "sum"),
    ("max", "min"),
    ("amax", "amin"),
    ("argmax", "argmin"),
    ("maximum", "minimum"),
    ("floor", "ceil"),
    ("any", "all"),
    ("cumsum", "cumprod"),
    ("ones", "zeros"),
    ("ones_like", "zeros_like"),
)
OTHER = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
DROPPED = {"abs", "clamp", "clip", "cumsum", "cumprod", "exp", "flip", "log", "softmax", "sqrt", "square", "sorted"}
"""Functions of one thing whose result may stand for that thing."""
UNORDERED = {"isinstance", "getattr", "cast", "zip", "hasattr"}
"""Calls whose first two arguments nobody confuses."""


@dataclass(frozen=True)
class Mutation:
    """One change: at which line, in a source line that reads so, and which expression becomes which."""

    number: int
    line: int
    end: int
    text: str
    before: str
    after: str
    runs_on_import: bool
    """Whether the line stands outside every function."""


def mutations(source: str) -> list[Mutation]:
    """All of a file, in an order that depends on nothing else."""
    lines = source.splitlines()
    found = []
    for number, (parent, field, index, new, inside) in enumerate(_sites(ast.parse(source))):
        old = _get(parent, field, index)
        where = old if hasattr(old, "lineno") else parent
        text = lines[where.lineno - 1].strip()
        before, after = _said(parent, field, index, old, new)
        found.append(Mutation(number, where.lineno, where.end_lineno or where.lineno, text, before, after, not inside))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The file with one change."""
    tree = ast.parse(source)
    for at, (parent, field, index, new, _) in enumerate(_sites(tree)):
        if at == number:
            _set(parent, field, index, new)
            return ast.fix_missing_locations(tree)
    raise IndexError(number)


Site = tuple[ast.AST, str, int | None, ast.AST | None, bool]
"""Parent, field, place in it where that is a list, what comes there instead, and whether it is in a function."""


def _get(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(parent, field)
    return value if index is None else value[index]


def _set(parent: ast.AST, field: str, index: int | None, new: ast.AST | None) -> None:
    if index is None:
        setattr(parent, field, new)
    elif new is None:
        del getattr(parent, field)[index]
    else:
        getattr(parent, field)[index] = new


def _said(parent: ast.AST, field: str, index: int | None, old: ast.AST, new: ast.AST | None) -> tuple[str, str]:
    """The change in words: of a part that says nothing alone, in its parent."""
    if isinstance(old, ast.expr | ast.stmt) and new is not None and not isinstance(old, ast.Constant):
        return ast.unparse(old), ast.unparse(ast.fix_missing_locations(new))
    before = ast.unparse(parent)
    _set(parent, field, index, new)
    after = ast.unparse(ast.fix_missing_locations(parent))
    if new is None and index is not None:
        getattr(parent, field).insert(index, old)
    else:
        _set(parent, field, index, old)
    return before, after


def _sites(tree: ast.AST, inside: bool = False) -> Iterator[Site]:
    if isinstance(tree, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    within = inside or isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_params") or (
            isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING"
        ):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                place = index if isinstance(value, list) else None
                for new in _instead(child, tree, field):
                    yield tree, field, place, new, within
                yield from _sites(child, within)


def _instead(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST | None]:
    """What might stand in the place of a node; None for nothing."""
    match node:
        case ast.stmt():
            yield from _of_statements(node)
        case ast.BinOp():
            yield from _of_sums(node)
        case ast.Compare():
            for at, other in ((at, other) for at, op in enumerate(node.ops) for other in COMPARISONS[type(op)]):
                yield ast.Compare(node.left, [*node.ops[:at], other(), *node.ops[at + 1 :]], node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp():
            yield from _of_signs(node)
        case ast.Constant():
            yield from _of_numbers(node, parent)
        case ast.Slice():
            given = {part: value for part, value in ast.iter_fields(node) if value is not None}
            yield from (ast.Slice(**{**given, part: None}) for part in given)
        case ast.Call():
            yield from _of_calls(node)
        case ast.keyword() if isinstance(parent, ast.Call) and _name(parent.func) == "replace" and parent.keywords[1:]:
            yield None
    if field in ("test", "ifs") and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _of_statements(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value, lineno=node.lineno)
        case ast.Expr(ast.Call()):
            yield ast.copy_location(ast.Pass(), node)
        case ast.Continue():
            yield ast.copy_location(ast.Break(), node)


def _of_signs(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if not isinstance(node.op, ast.UAdd):
        yield node.operand
    if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int):
        yield ast.copy_location(ast.Constant(1 - node.operand.value), node)


def _of_sums(node: ast.BinOp) -> Iterator[ast.AST]:
    if any(isinstance(one, ast.JoinedStr | ast.List | ast.Tuple) or _is_text(one) for one in (node.left, node.right)):
        return
    if type(node.op) in ARITHMETIC:
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    if isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
        yield ast.BinOp(node.right, node.op, node.left)
    if not isinstance(node.op, ast.MatMult):
        yield node.left
    if isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr):
        yield node.right


def _of_numbers(node: ast.Constant, parent: ast.AST) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(parent, ast.Call) and _name(parent.func) == "empty":
        return  # The default of a field that has none.
    if isinstance(parent, ast.UnaryOp) and isinstance(value, int):
        return
    if isinstance(value, bool):
        yield ast.copy_location(ast.Constant(not value), node)
    elif isinstance(value, int):
        yield ast.copy_location(ast.Constant(value + 1), node)
        if value == 1:
            yield ast.copy_location(ast.Constant(0), node)
    elif isinstance(value, float) and not 0 < value < TOLERANCE:
        yield ast.copy_location(ast.Constant(2 * value or 1.0), node)


def _of_calls(node: ast.Call) -> Iterator[ast.AST]:
    name = _name(node.func)
    if name in OTHER:
        func: ast.expr = ast.Name(OTHER[name], ast.Load())
        if isinstance(node.func, ast.Attribute):
            func = ast.Attribute(node.func.value, OTHER[name], ast.Load())
        yield ast.Call(func, node.args, node.keywords)
    if name in DROPPED:
        of_module = isinstance(node.func, ast.Name) or _name(getattr(node.func, "value", node)) in (
            "torch",
            "np",
            "math",
        )
        if not of_module and isinstance(node.func, ast.Attribute):
            yield node.func.value
        elif node.args:
            yield node.args[0]
    first = node.args[:2]
    plain = len(first) == 2 and not any(isinstance(one, ast.Starred) or _is_text(one) for one in first)
    if plain and name not in UNORDERED and ast.dump(first[0]) != ast.dump(first[1]):
        yield ast.Call(node.func, [first[1], first[0], *node.args[2:]], node.keywords)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
