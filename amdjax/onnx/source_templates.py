"""How nodes are written with functions of amdjax, where those give the same.

A template is a function of a node, of what is known of its operands, and of their texts. It gives a
text, or None where the operator itself has to be called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.dims import is_symbolic_dim

from .graph import Node


class Operand(NamedTuple):
    """What is known of a value.

    Attributes:
      host: the array, where it is known as the program is traced.
      dtype, shape: of an array that is computed.
    """

    host: np.ndarray | None
    dtype: np.dtype | None
    shape: tuple[Any, ...] | None

    @property
    def is_sized(self) -> bool:
        """Whether its sizes are numbers."""
        return self.shape is not None and not any(map(is_symbolic_dim, self.shape))


Known = Sequence[Operand | None]
Template = Callable[[Node, Known, Sequence[str]], str | None]

TEMPLATES: dict[str, Template] = {}


def _computed(operands: Known, kinds: str = "fiu") -> bool:
    """Whether all operands are arrays of such kinds, of which one is computed."""
    dtypes = [x and (x.dtype if x.host is None else x.host.dtype) for x in operands]
    known = all(d is not None and d.kind in kinds for d in dtypes)
    return known and any(x is not None and x.host is None for x in operands)


def _infix(symbol: str, kinds: str = "fiu") -> Template:
    def write(node: Node, of: Known, xs: Sequence[str]) -> str | None:
        if node.attributes or len(xs) != 2 or not _computed(of, kinds):
            return None
        return f"{xs[0]} {symbol} {xs[1]}"

    return write


def _call(function: str, kinds: str = "f") -> Template:
    def write(node: Node, of: Known, xs: Sequence[str]) -> str | None:
        if node.attributes or "None" in xs or not _computed(of, kinds):
            return None
        return f"{function}({', '.join(xs)})"

    return write


TEMPLATES.update(
    {name: _infix(symbol) for name, symbol in {
        "Add": "+", "Sub": "-", "Mul": "*", "Equal": "==", "Greater": ">", "Less": "<",
        "GreaterOrEqual": ">=", "LessOrEqual": "<=",
    }.items()}
)  # fmt: skip
TEMPLATES["Div"] = _infix("/", "f")
TEMPLATES["MatMul"] = _infix("@", "f")
TEMPLATES.update(
    {name: _call(function) for name, function in {
        "Abs": "jnp.abs", "Ceil": "jnp.ceil", "Cos": "jnp.cos", "Erf": "special.erf",
        "Exp": "jnp.exp", "Floor": "jnp.floor", "Log": "jnp.log", "Neg": "jnp.negative",
        "Reciprocal": "jnp.reciprocal", "Relu": "nn.relu", "Round": "jnp.round",
        "Sigmoid": "nn.sigmoid", "Sin": "jnp.sin", "Softplus": "nn.softplus", "Sqrt": "jnp.sqrt",
        "Tan": "jnp.tan", "Tanh": "jnp.tanh", "Mish": "nn.mish",
    }.items()}
)  # fmt: skip
TEMPLATES["Where"] = _call("jnp.where", "bfiu")
TEMPLATES["Not"] = _call("jnp.logical_not", "b")


def _template(name: str) -> Callable[[Template], Template]:
    def enter(function: Template) -> Template:
        TEMPLATES[name] = function
        return function

    return enter


def _is_array(x: Operand | None, kinds: str = "bfiu") -> bool:
    return x is not None and x.host is None and x.dtype is not None and x.dtype.kind in kinds


def _ints(x: Operand | None) -> list[int] | None:
    """An operand that is known as integers."""
    if x is None or x.host is None or x.host.dtype.kind not in "iu":
        return None
    return [int(n) for n in x.host.ravel()]


@_template("Identity")
def _identity(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    return xs[0]


@_template("Gemm")
def _gemm(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    scales = [node.attributes.get(n, 1.0) for n in ("alpha", "beta")]
    if not _computed(of[:2], "f") or scales != [1.0, 1.0] or (len(xs) > 2 and xs[2] == "None"):
        return None
    a, b = (f"{x}.T" if node.attributes.get(f"trans{n}") else x for x, n in zip(xs, ("A", "B")))
    return f"{a} @ {b}" + "".join(f" + {c}" for c in xs[2:])


@_template("Transpose")
def _transpose(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    order = node.attributes.get("perm")
    if not _is_array(of[0]):
        return None
    return f"{xs[0]}.T" if order is None else f"{xs[0]}.transpose({tuple(order)!r})"


@_template("Reshape")
def _reshape(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    sizes = _ints(of[1]) if len(of) > 1 else None
    if sizes is None or not _is_array(of[0]) or (node.attributes.get("allowzero") and 0 in sizes):
        return None
    parts = [f"{xs[0]}.shape[{i}]" if n == 0 else str(n) for i, n in enumerate(sizes)]
    return f"{xs[0]}.reshape(({''.join(p + ', ' for p in parts).rstrip()}))"


@_template("Softmax")
def _softmax(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    if node.version < 13 or not _is_array(of[0], "f"):
        return None
    return f"nn.softmax({xs[0]}, axis={int(node.attributes.get('axis', -1))})"


@_template("Concat")
def _concat(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    if not all(map(_is_array, of)) or "axis" not in node.attributes:
        return None
    return f"jnp.concatenate([{', '.join(xs)}], {int(node.attributes['axis'])})"


def _axes(node: Node, of: Known) -> tuple[int, ...] | None:
    """Axes, which are an attribute or an operand."""
    given = node.attributes.get("axes")
    if given is None and len(of) > 1:
        given = _ints(of[1])
    return None if given is None else tuple(map(int, given))


@_template("Squeeze")
def _squeeze(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    axes = _axes(node, of)
    return f"jnp.squeeze({xs[0]}, {axes!r})" if axes and _is_array(of[0]) else None


@_template("Unsqueeze")
def _unsqueeze(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    axes = _axes(node, of)
    return f"jnp.expand_dims({xs[0]}, {axes!r})" if axes and _is_array(of[0]) else None


def _reduction(function: str) -> Template:
    def write(node: Node, of: Known, xs: Sequence[str]) -> str | None:
        axes = _axes(node, of)
        if not axes or not _is_array(of[0], "f"):
            return None
        keep = bool(node.attributes.get("keepdims", 1))
        return f"{function}({xs[0]}, {axes!r}, keepdims={keep})"

    return write


TEMPLATES["ReduceMean"] = _reduction("jnp.mean")
TEMPLATES["ReduceSum"] = _reduction("jnp.sum")


@_template("Conv")
def _conv(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    a = node.attributes
    if not all(_is_array(x, "f") for x in of) or a.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    assert of[0] is not None and of[0].shape is not None
    rank = len(of[0].shape) - 2
    if not 1 <= rank <= 3:
        return None
    ones = [1] * rank
    strides, pads = list(a.get("strides") or ones), list(a.get("pads") or [0] * 2 * rank)
    space = "DHW"[-rank:]
    text = (
        f"lax.conv_general_dilated({xs[0]}, {xs[1]}, {strides}, "
        f"{list(zip(pads[:rank], pads[rank:]))}"
    )
    if (dilations := list(a.get("dilations") or ones)) != ones:
        text += f", rhs_dilation={dilations}"
    if (group := int(a.get("group", 1))) != 1:
        text += f", feature_group_count={group}"
    names = tuple(n + space for n in ("NC", "OI", "NC"))
    text += f", dimension_numbers={names!r})"
    if len(xs) > 2:
        text += f" + {xs[2]}.reshape({(1, -1, *ones)!r})"
    return text


@_template("LayerNormalization")
def _layer_norm(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    if len(node.outputs) != 1 or not all(_is_array(x, "f") for x in of):
        return None
    if node.attributes.get("axis", -1) != -1 or any(len(x.shape or ()) != 1 for x in of[1:] if x):
        return None
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    return f"nn.layer_norm({', '.join(xs)}, axis=(-1,), epsilon={epsilon!r})"


@_template("Cast")
def _cast(node: Node, of: Known, xs: Sequence[str]) -> str | None:
    wide = {1: "float32", 6: "int32", 7: "int64", 10: "float16", 11: "float64"}
    to = wide.get(node.attributes["to"])
    return f"{xs[0]}.astype(np.{to})" if to and _is_array(of[0]) else None
