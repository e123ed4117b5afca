"""Families made of examples: one good call of each function, written as Python.

In an example `K` is a key, `V` a vector, `X` a matrix, `S` a square one, `U` and `UV` numbers of
the unit interval, `I` and `N` integers, `B` a mask; names in `CALLABLES` are functions. Keywords of
an initializer make it, what stands at its places calls what was made; `made.grad(f, x, argnums=0)`
is `grad(f, argnums=0)(x)`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from copy import deepcopy
from typing import Any

from tests.support.jax_calls import Call, Draw, Family
from tests.support.recorded_calls import CALLABLES


def _array(dtype: str, shape: tuple[int, ...], kind: str = "usual") -> dict[str, Any]:
    return {"a": [dtype, list(shape), len(shape) + 3, kind]}


def _made(path: str, **keywords: Any) -> dict[str, Any]:
    return {"call": [path, keywords]}


NAMES: dict[str, Any] = {
    "K": {"key": 0},
    "V": _array("float32", (4,)),
    "X": _array("float32", (2, 3)),
    "S": _array("float32", (3, 3), "definite"),
    "U": _array("float32", (), "unit"),
    "UV": _array("float32", (3,), "unit"),
    "I": _array("int32", (3,), "index"),
    "N": _array("int32", (), "positive"),
    "B": _array("bool", (2, 3)),
    "T": _array("float32", (2, 5, 2, 4)),
    "W": _array("float32", (1, 3)),
    "V2": _array("float32", (2,), "unit"),
    "S2": _array("float32", (2, 2), "definite"),
    "T3": _array("float32", (3, 3, 2)),
    "SEG": _array("int32", (4,), "index"),
    "WORDS": {"n": ["uint32", [2], 4, "usual"]},
    "SEG3": {"a": ["int32", [3], 1, "index"]},
    "TWO": _made("tree_util.tree_structure", tree={"t": [0, 1]}),
    "SPEC": _made("ShapeDtypeStruct", shape={"t": []}, dtype="float32"),
    "DEVICES": (DEVICES := _made("devices")),
    "DEVICE": {"first": DEVICES},
    "MESH": (MESH := _made("sharding.Mesh", devices=DEVICES, axis_names={"t": ["x"]})),
    "SPLIT": (SPLIT := _made("sharding.PartitionSpec")),
    "ALONG": _made("sharding.NamedSharding", mesh=MESH, spec=SPLIT),
    **{name: {"f": name} for name in CALLABLES},
}


def _spec(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return NAMES[node.id]
    if isinstance(node, ast.Tuple):
        return {"t": [_spec(e) for e in node.elts]}
    if isinstance(node, ast.List):
        return [_spec(e) for e in node.elts]
    return ast.literal_eval(node)


def examples(text: str) -> dict[Family, str]:
    """The family of all functions that a text has examples of, one a line."""
    known: dict[str, list[Call]] = defaultdict(list)
    for line in filter(None, map(str.strip, text.splitlines())):
        call = ast.parse(line, mode="eval").body
        assert isinstance(call, ast.Call)
        arguments = [_spec(a) for a in call.args]
        keywords = {k.arg: _spec(k.value) for k in call.keywords if k.arg}
        known[ast.unparse(call.func)].append((arguments, keywords))

    def family(d: Draw) -> Call:
        return deepcopy(d.pick(known[d.name]))

    return {family: " ".join(known)}
