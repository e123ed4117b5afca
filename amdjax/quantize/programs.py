"""Functions as programs whose products are known: where they are, and which operands are weights.

A function is traced and its calls are inlined; bodies of loops and branches are blocks inside. A
product's weight is the operand that follows from parameters alone, by whatever operations: those
are done once, and their result is what is quantized.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, eval_jaxpr
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.pytree import PyTreeDef, keystr, tree_flatten, tree_flatten_with_path
from amdjax.passes.flatten import flatten_calls
from amdjax.transforms.flat import FlatFunction, debug_info
from amdjax.transforms.vmap import vmap

__all__ = ["Product"]

PRODUCTS = ("dot_general", "conv_general_dilated")
#: Products of bytes beyond which sums of 32 bits may overflow.
DEEPEST = 2**31 // 2**14 - 1

#: `handle(product, operands, given, note) -> result`, with what is given for products and inputs by
#: name, and what takes values of a product by name, if they are wanted.
Handle = Callable[["Product", list[Any], "Given", "Notes | None"], Any]
Notes = dict[str, Any]


class Given(NamedTuple):
    """What is known of products while a program runs.

    In a loop of whose steps each has weights of its own, it is that of the step.

    Attributes:
      products: weights in few bits and what else they need, by name of the product.
      inputs: scales of activations by name.
    """

    products: Mapping[str, Any]
    inputs: Mapping[str, Any]

    def of_steps(self, names: set[str]) -> Given:
        """The part that has a row for each step: of some products, and of what they read."""
        products = {n: x for n, x in self.products.items() if n in names}
        inputs = {n: x for n, x in self.inputs.items() if n in names or n[:-3] in names}
        return Given(products, inputs)

    def with_step(self, own: Given) -> Given:
        """The same with rows in place of what has some."""
        return Given({**self.products, **own.products}, {**self.inputs, **own.inputs})


NOTHING = Given({}, {})


@dataclasses.dataclass(frozen=True, eq=False)
class Product:
    """A product or convolution of a program.

    Args:
      name: the path of the parameter that its weight is made from, else scope and operation.
      operation: "dot_general" or "conv_general_dilated".
      shapes: of its operands and of its result.
      weight: which operand follows from parameters alone; None for neither.
      scope: the enclosing `named_scope`s.
      rows: the loops around it, counted from outside, each of whose steps has a weight.
      nested: whether it is in the body of a loop or in a branch.
      seen: whether calibration sees all that it reads: there are only scans around it.
      eqn: the equation.
    """

    name: str
    operation: str
    shapes: tuple[tuple[int, ...], ...]
    weight: int | None
    scope: str
    rows: tuple[int, ...]
    nested: bool
    seen: bool
    eqn: JaxprEqn = dataclasses.field(repr=False)

    @property
    def depth(self) -> int:
        """How many products a sum has."""
        if self.operation == "dot_general":
            (axes, _), _ = self.eqn.params["dimension_numbers"]
            return int(np.prod([self.shapes[0][d] for d in axes], dtype=int))
        spec = self.eqn.params["dimension_numbers"].rhs_spec
        return int(np.prod([self.shapes[1][d] for d in spec[1:]], dtype=int))


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known of a value that follows from parameters alone.

    Attributes:
      names: of the parameters.
      bytes: theirs.
      rows: the loops around, counted from outside, each of whose steps has its own.
    """

    names: frozenset[str]
    bytes: int = 0
    rows: frozenset[int] = frozenset()


@dataclasses.dataclass(eq=False)
class Block:
    """A program with calls inlined, and what is in it.

    Attributes:
      closed: the program.
      known: its variables that follow from parameters alone.
      products: by equation.
      depth: how many blocks there are around it.
      in_scans: whether all of these are bodies of scans.
      inner: the blocks of equations that are control flow.
    """

    closed: ClosedJaxpr
    known: dict[Var, Known]
    depth: int
    in_scans: bool = True
    products: dict[JaxprEqn, Product] = dataclasses.field(default_factory=dict)
    inner: dict[JaxprEqn, list[Block]] = dataclasses.field(default_factory=dict)

    def all_products(self) -> list[Product]:
        """Those of the block and of blocks inside, in order."""
        found = []
        for eqn in self.closed.eqns:
            if eqn in self.products:
                found.append(self.products[eqn])
            for block in self.inner.get(eqn, ()):
                found += block.all_products()
        return found


@dataclasses.dataclass(eq=False)
class Program:
    """A traced function of parameters and inputs.

    Attributes:
      block: what it does.
      leaves: names of the parameters' leaves, its first arguments.
      out_tree: the structure of its result.
    """

    block: Block
    leaves: list[str]
    out_tree: PyTreeDef
    products: list[Product]


def leaf_names(params: Any) -> list[str]:
    """The paths to the leaves of parameters, as `blocks/0/kernel`."""
    paths = [path for path, _ in tree_flatten_with_path(params)[0]]
    return [keystr(path, simple=True, separator="/") or "params" for path in paths]


def as_call(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs from an item of data: a tuple of them, a dict of named ones, or a single one."""
    if isinstance(item, dict):
        return (), dict(item)
    if type(item) in (tuple, list):
        return tuple(item), {}
    return (item,), {}


def avals_of(tree: Any) -> tuple[list[ShapedArray], PyTreeDef]:
    """The types of a pytree's leaves: arrays, or what has a shape and a dtype."""
    leaves, structure = tree_flatten(tree)
    return [_aval(x) for x in leaves], structure


def _aval(x: Any) -> ShapedArray:
    try:
        return get_aval(x)
    except TypeError:
        return ShapedArray(tuple(x.shape), np.dtype(x.dtype))


def flat_program(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
) -> tuple[ClosedJaxpr, PyTreeDef]:
    """A function's program, its calls inlined, and the structure of its result."""
    avals, structure = avals_of((args, kwargs))
    flat = FlatFunction(f, structure)
    info = debug_info("quantize", f, args, kwargs)
    closed = flatten_calls(trace_to_jaxpr(flat, avals, debug_info=info))
    return closed, flat.out_tree


def block_of(closed: ClosedJaxpr) -> Block:
    """The block of a program that has no parameters."""
    return _block(closed, {}, _Names(), 0)


def trace_program(
    f: Callable[..., Any], params: Any, args: tuple[Any, ...], kwargs: Any
) -> Program:
    """The program of `f(params, *args, **kwargs)`."""
    closed, out_tree = flat_program(f, (params, *args), kwargs)
    names = leaf_names(params)
    known: dict[Var, Known] = {}
    for name, var in zip(names, closed.jaxpr.invars):
        known[var] = Known(frozenset((name,)), _bytes(var.aval))
    block = _block(closed, known, _Names(), 0)
    return Program(block, names, out_tree, block.all_products())


class _Names:
    """Names that are given once."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}

    def unique(self, name: str) -> str:
        count = self.given[name] = self.given.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _bytes(aval: Any) -> int:
    size = getattr(aval, "size", 0)
    return 0 if isinstance(size, Dim) else int(size) * getattr(aval.dtype, "itemsize", 0)


def _block(
    closed: ClosedJaxpr, known: dict[Var, Known], names: _Names, depth: int, in_scans: bool = True
) -> Block:
    for i, var in enumerate(closed.jaxpr.constvars):
        known[var] = Known(frozenset((f"constant{i}",)), _bytes(var.aval))
    block = Block(closed, known, depth, in_scans)
    for eqn in closed.eqns:
        of_operands = [_known(known, x) for x in eqn.invars]
        if eqn.primitive.name in PRODUCTS and _is_float(eqn):
            block.products[eqn] = _product(eqn, of_operands, names, depth > 0, in_scans)
        elif eqn.primitive.name in _BODIES:
            seen = in_scans and eqn.primitive.name == "scan"
            block.inner[eqn] = [
                _inner(body, given, names, depth + 1, seen)
                for body, given in _bodies(eqn, of_operands, depth)
            ]
            continue  # results of loops and branches are no weights
        known.update((v, k) for k in _joined(eqn, of_operands) for v in eqn.outvars)
    return block


def _joined(eqn: JaxprEqn, of_operands: list[Known | None]) -> list[Known]:
    """What is known of an operation's results, in a list; an empty one if nothing is."""
    known = [k for k in of_operands if k is not None]
    if eqn.effects or len(known) < len(of_operands) or not any(k.names for k in known):
        return []
    names, rows = frozenset[str]().union(*(k.names for k in known)), frozenset[int]()
    return [Known(names, sum(k.bytes for k in known), rows.union(*(k.rows for k in known)))]


def _known(known: Mapping[Var, Known], x: Any) -> Known | None:
    return Known(frozenset()) if isinstance(x, Literal) else known.get(x)


def _is_float(eqn: JaxprEqn) -> bool:
    """Whether a product is one of real floats, of sizes that are known."""
    avals = [x.aval for x in (*eqn.invars, *eqn.outvars)]
    wide = all(
        dtypes.issubdtype(a.dtype, np.floating) and np.dtype(a.dtype).itemsize > 1 for a in avals
    )
    return wide and eqn.params.get("batch_group_count", 1) == 1


def _product(
    eqn: JaxprEqn, known: list[Known | None], names: _Names, nested: bool, seen: bool
) -> Product:
    operation, scope = eqn.primitive.name, "/".join(eqn.source.scope)
    sides = [i for i, k in enumerate(known) if k is not None and k.names]
    # A weight that was repeated, as for the examples of a batch, would be stored as often.
    sides = [i for i in sides if _bytes(eqn.invars[i].aval) <= known[i].bytes]  # type: ignore[union-attr]
    weight = None
    if len(sides) == 1 and (operation == "dot_general" or sides == [1]):
        weight = sides[0]
    name = f"{scope}/{operation}" if scope else operation
    rows: tuple[int, ...] = ()
    if weight is not None:
        rows = tuple(sorted(known[weight].rows))  # type: ignore[union-attr]
        if len(known[weight].names) == 1:  # type: ignore[union-attr]
            (name,) = known[weight].names  # type: ignore[union-attr]
    shapes = tuple(tuple(x.aval.shape) for x in (*eqn.invars, *eqn.outvars))
    return Product(names.unique(name), operation, shapes, weight, scope, rows, nested, seen, eqn)


# Control flow

_BODIES = ("scan", "cond", "while")


def _bodies(
    eqn: JaxprEqn, known: list[Known | None], depth: int
) -> list[tuple[ClosedJaxpr, list[Known | None]]]:
    """The bodies whose products are looked at, and what is known of their arguments."""
    params = eqn.params
    if eqn.primitive.name == "cond":
        return [(body, known[1:]) for body in params["branches"]]
    if eqn.primitive.name == "while":
        first, count = params["cond_nconsts"], params["body_nconsts"]
        carry = len(params["body_jaxpr"].in_avals) - count
        return [(params["body_jaxpr"], [*known[first : first + count], *[None] * carry])]
    consts, carry = params["num_consts"], params["num_carry"]
    rows = [
        k and (dataclasses.replace(k, rows=k.rows | {depth}) if k.names else k)
        for k in known[consts + carry :]
    ]
    return [(params["jaxpr"], [*known[:consts], *[None] * carry, *rows])]


def _inner(
    body: ClosedJaxpr, given: list[Known | None], names: _Names, depth: int, in_scans: bool
) -> Block:
    closed = flatten_calls(body)
    known = {v: k for v, k in zip(closed.jaxpr.invars, given) if k is not None}
    return _block(closed, known, names, depth, in_scans)


# What is done with a block


def run(
    block: Block, args: Sequence[Any], handle: Handle, given: Given = NOTHING,
    watch: Callable[[JaxprEqn, list[Any]], None] = lambda eqn, values: None,
    notes: Notes | None = None,
) -> list[Any]:  # fmt: skip
    """Run a block under the current trace, its products by `handle`.

    Args:
      block: the block.
      args: its arguments.
      handle: gives the result of a product.
      given: what it is given; a row for each step of loops where the product's weight is one of
        rows.
      watch: `watch(eqn, values)` is told of each operation before it is done.
      notes: gets what `handle` notes, of scans a row for each step. It must note nothing of
        products in other loops and in branches.
    """

    def apply(eqn: JaxprEqn, values: list[Any]) -> Any:
        watch(eqn, values)
        if eqn in block.products:
            return handle(block.products[eqn], values, given, notes)
        if any(b.all_products() for b in block.inner.get(eqn, ())):
            step = lambda inner, args, own, notes: run(inner, args, handle, own, watch, notes)
            return _RUN[eqn.primitive.name](block, eqn, values, step, given, notes)
        return eqn.primitive.bind(*values, **eqn.params)

    return eval_jaxpr(block.closed.jaxpr, block.closed.consts, *args, apply=apply)


#: `step(block, args, given, notes) -> results` of a body.
Step = Callable[[Block, Sequence[Any], Given, "Notes | None"], list[Any]]


def _run_scan(
    outer: Block, eqn: JaxprEqn, values: list[Any], step: Step, given: Given, notes: Notes | None
) -> list[Any]:
    (block,), params = outer.inner[eqn], eqn.params
    first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
    names = {p.name for p in block.all_products() if outer.depth in p.rows}

    def body(carry: list[Any], x: Any) -> tuple[list[Any], Any]:
        own, of_step = x
        noted: Notes | None = None if notes is None else {}
        outs = step(block, [*values[:first], *carry, *own], given.with_step(of_step), noted)
        return outs[: last - first], (outs[last - first :], noted)

    carry, (ys, noted) = lax.scan(
        body, values[first:last], (values[last:], given.of_steps(names)), length=params["length"],
        reverse=params["reverse"], unroll=params["unroll"],
    )  # fmt: skip
    if notes is not None:
        notes.update(noted)
    return [*carry, *ys]


def _run_cond(
    outer: Block, eqn: JaxprEqn, values: list[Any], step: Step, given: Given, notes: Notes | None
) -> list[Any]:
    branches = [lambda *args, b=b: step(b, args, given, None) for b in outer.inner[eqn]]
    return lax.switch(values[0], branches, *values[1:])


def _run_while(
    outer: Block, eqn: JaxprEqn, values: list[Any], step: Step, given: Given, notes: Notes | None
) -> list[Any]:
    (block,), condition = outer.inner[eqn], eqn.params["cond_jaxpr"]
    first = eqn.params["cond_nconsts"]
    last = first + eqn.params["body_nconsts"]
    return lax.while_loop(
        lambda carry: eval_jaxpr(condition.jaxpr, condition.consts, *values[:first], *carry)[0],
        lambda carry: step(block, [*values[first:last], *carry], given, None),
        values[last:],
    )


_RUN = {"scan": _run_scan, "cond": _run_cond, "while": _run_while}


def weights_of(block: Block, args: Sequence[Any], wanted: set[str]) -> dict[str, Any]:
    """The weights of products, from the known arguments of a block.

    Args:
      block: the block.
      args: its arguments, anything where they are not known.
      wanted: names of products.

    Returns:
      For each of them its weight; a row for each step, of those of loops over rows.
    """
    mine = [(e, p) for e, p in block.products.items() if p.name in wanted and p.weight is not None]
    calls = [
        (eqn, b) for eqn, blocks in block.inner.items() for b in blocks
        if wanted & {p.name for p in b.all_products()}
    ]  # fmt: skip
    atoms = [e.invars[p.weight] for e, p in mine if p.weight is not None]
    for eqn, _ in calls:
        atoms += [x for x in eqn.invars if isinstance(x, Var) and x in block.known]
    unique = list(dict.fromkeys(atoms))
    values = dict(zip(unique, _evaluated(block, unique, args)))
    found = {p.name: values[e.invars[p.weight]] for e, p in mine if p.weight is not None}
    for eqn, inner in calls:
        known = [x.val if isinstance(x, Literal) else values.get(x) for x in eqn.invars]
        found.update(_weights_inside(block, eqn, inner, known, wanted))
    return found


def _evaluated(block: Block, atoms: list[Any], args: Sequence[Any]) -> list[Any]:
    """Known values of a block."""
    jaxpr = block.closed.jaxpr
    wanted = Jaxpr(jaxpr.constvars, jaxpr.invars, atoms, jaxpr.eqns)
    needed, used = dce_jaxpr(wanted, [True] * len(atoms))
    return eval_jaxpr(needed, block.closed.consts, *[x for x, u in zip(args, used) if u])


def _weights_inside(
    outer: Block, eqn: JaxprEqn, inner: Block, known: list[Any], wanted: set[str]
) -> dict[str, Any]:
    """The weights of products in a body, from the known operands of the equation around it."""
    params, name = eqn.params, eqn.primitive.name
    if name == "cond":
        return weights_of(inner, known[1:], wanted)
    if name == "while":
        first = params["cond_nconsts"]
        return weights_of(inner, known[first:], wanted)
    rows = {p.name for p in inner.all_products() if outer.depth in p.rows} & wanted
    found = weights_of(inner, known, wanted - rows)
    if rows:
        first = params["num_consts"] + params["num_carry"]
        xs = [x for x in known[first:] if x is not None]

        def of_step(*own: Any) -> dict[str, Any]:
            it = iter(own)
            step = [None if x is None else next(it) for x in known[first:]]
            return weights_of(inner, [*known[:first], *step], rows)

        found.update(vmap(of_step)(*xs))
    return found
