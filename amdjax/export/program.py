"""Programs apart from the functions that they were traced from."""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.aval import ShapedArray, get_aval, is_extended
from amdjax.core.check import check_jaxpr
from amdjax.core.config import config
from amdjax.core.dims import Dim, SymbolicScope, polynomial, symbolic_shape
from amdjax.core.dims.parse import parse_dimension
from amdjax.core.dtypes import dtype_from_short_name, short_dtype_name
from amdjax.core.errors import JaxprTypeError
from amdjax.core.jaxpr import ClosedJaxpr, Opaque, jaxpr_as_fun, subjaxprs_of_value
from amdjax.core.lowering import Host
from amdjax.core.parse import parse_jaxpr
from amdjax.core.pprint import format_jaxpr
from amdjax.core.pytree import (
    PyTreeDef,
    broadcast_prefix,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from amdjax.core.trace import Tracer
from amdjax.transforms.staging import ShapeDtypeStruct
from amdjax.transforms.symbolic_calls import Sizes, bind_at_sizes

__all__ = ["Exported", "deserialize", "export", "symbolic_args_specs"]


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:  # fmt: skip
    """Descriptions of arguments of which some dimensions are symbolic.

    Args:
      args: a pytree of arrays or `ShapeDtypeStruct`s.
      shapes_specs: a pytree of texts as for `symbolic_shape`, or a prefix of one; None where
        shapes are fixed.
      constraints, scope: as for `symbolic_shape`; one scope serves all.

    Returns:
      A pytree of `ShapeDtypeStruct` as `args`.

    Raises:
      ValueError: as `symbolic_shape`; the trees do not match.

    Example:
      >>> x, w = np.zeros((2, 8), np.float32), np.zeros((8, 4), np.float32)
      >>> amdjax.export.symbolic_args_specs((x, w), ("b, _", None))[0]
      ShapeDtypeStruct(shape=(b, 8), dtype=float32)
    """
    if scope is not None and constraints:
        raise ValueError("symbolic_args_specs: give constraints to the scope when it is made")
    scope = SymbolicScope(constraints) if scope is None else scope
    leaves, tree = tree_flatten(args)
    try:
        specs = broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None)
    except ValueError as e:
        raise ValueError(f"symbolic_args_specs: shapes_specs is no prefix of args: {e}") from None
    found: list[Any] = []
    for leaf, spec in zip(leaves, specs):
        aval = get_aval(leaf)
        text = "..." if spec is None else spec
        try:
            shape = symbolic_shape(text, scope=scope, like=aval.shape)
        except ValueError as e:
            raise ValueError(
                f"symbolic_args_specs: leaf {len(found)} of args, of shape {aval.shape}: {e}"
            ) from None
        found.append(ShapeDtypeStruct(shape, aval.dtype, weak_type=aval.weak_type))
    return tree.unflatten(found)


@dataclass(frozen=True)
class Exported:
    """A program apart from the function that it was traced from.

    Args:
      fun_name: the function's name.
      in_tree: the structure of the arguments, `(args, kwargs)`.
      in_avals: the types of their leaves.
      out_tree: the structure of the results.
      out_avals: the types of their leaves.
      program: the program.
      platforms: where it is meant to run.
    """

    fun_name: str
    in_tree: PyTreeDef
    in_avals: tuple[Any, ...]
    out_tree: PyTreeDef
    out_avals: tuple[Any, ...]
    program: ClosedJaxpr = field(repr=False)
    platforms: tuple[str, ...]
    _compiled: list[Any] = field(default_factory=list, repr=False, compare=False)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the program, which is compiled for the default device.

        Other functions may call it where they are traced, differentiated or vectorized.

        Args:
          *args: arguments of the structure that was exported, of any sizes that it serves.
          **kwargs: those by name.

        Raises:
          TypeError: they have another structure, or other dtypes.
          ValueError: sizes do not fit, violate a constraint, or are such that the function would
            have to be traced for them alone.
        """
        # late: loads the compiler
        from amdjax.jit.after_tracing import check_types, leaves_of
        from amdjax.jit.stages import Lowered, Traced
        from amdjax.jit.symbolic_stages import SymbolicCompiled

        if not self._compiled:
            flags = (False,) * len(self.in_avals)
            traced = Traced(self.program, self.in_tree, self.out_tree, self.fun_name, flags)
            self._compiled.append(Lowered(traced).compile())
        compiled = self._compiled[0]
        if not any(isinstance(x, Tracer) for x in tree_leaves((args, kwargs))):
            return compiled(*args, **kwargs)
        leaves, program = leaves_of(compiled.traced, args, kwargs), self.program
        if isinstance(compiled, SymbolicCompiled):
            sizes = compiled.sizes(leaves)
            if program.effects or compiled.scope.is_apart(sizes):
                program = compiled.traced_at(sizes).jaxpr
            else:
                at = Sizes(compiled.scope, tuple(sorted(sizes.items())))
                outs = bind_at_sizes(program, leaves, at, self.fun_name)
                return tree_unflatten(self.out_tree, outs)
        else:
            check_types(compiled.traced, leaves)
        return tree_unflatten(self.out_tree, jaxpr_as_fun(program)(*leaves))

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The program as bytes, which `deserialize` reads.

        Args:
          vjp_order: accepted; what is read back can be differentiated as often as the function.

        Returns:
          A checksum, a header in JSON with the program as text, and the values of its constants.

        Raises:
          ValueError: the program calls Python functions, works on references, takes random keys, or
            its arguments or results are in containers other than tuples, lists and dictionaries.
        """
        text = format_jaxpr(self.program, exact=True)
        scope = _scope(self.in_avals)
        _check_readable(self.program, text, scope)
        consts = [np.asarray(c) for c in self.program.consts]
        header = {
            "format": _FORMAT, "fun_name": self.fun_name, "platforms": list(self.platforms),
            "in_tree": _described(self.in_tree), "out_tree": _described(self.out_tree),
            "constraints": list(scope.constraints), "program": text,
            "unequal": sorted(map(polynomial.text, scope.undecided)),
            "assumed": _assumed(scope),
            "consts": [[short_dtype_name(c.dtype), list(c.shape)] for c in consts],
            "enable_x64": config.enable_x64,
        }  # fmt: skip
        told = json.dumps(header).encode()
        data = b"".join(np.ascontiguousarray(c).tobytes() for c in consts)
        body = len(told).to_bytes(8, "little") + told + data
        return bytearray(_MAGIC + hashlib.sha256(body).digest() + body)


def export(
    fun_jit: Any, *, platforms: Sequence[str] | None = None, disabled_checks: Sequence[Any] = ()
) -> Callable[..., Exported]:
    """Trace a jitted function for descriptions of arguments, and keep the program apart from it.

    Args:
      fun_jit: a function made by `jit`.
      platforms: where it is meant to run, some of `cpu hip cuda rocm gpu`; all by default, since a
        program is compiled where it is called.
      disabled_checks: accepted; there is nothing to disable.

    Returns:
      A function of `ShapeDtypeStruct`s, whose shapes may be symbolic, or arrays, that returns an
      `Exported`.

    Raises:
      ValueError: the function is not jitted, or there is no such platform.

    Example:
      >>> spec = amdjax.ShapeDtypeStruct(amdjax.export.symbolic_shape("b, 3"), jnp.float32)
      >>> exported = amdjax.export.export(amdjax.jit(lambda x: x.sum(1)))(spec)
      >>> again = amdjax.export.deserialize(exported.serialize())
      >>> again.call(np.ones((2, 3), np.float32)), again.out_avals
      (Array([3., 3.], dtype=float32), (ShapedArray(float32[b]),))
    """
    if not hasattr(fun_jit, "trace"):
        raise ValueError(f"export: the function must be made by jit, got {fun_jit!r}")
    chosen = _checked_platforms("export", _PLATFORMS if platforms is None else platforms)

    def exported(*args: Any, **kwargs: Any) -> Exported:
        traced = fun_jit.trace(*args, **kwargs)
        program = traced.jaxpr
        ins, outs = tuple(program.in_avals), tuple(program.out_avals)
        return Exported(
            traced.fun_name, traced.in_tree, ins, traced.out_tree, outs, program, chosen
        )

    return exported


def deserialize(blob: bytes | bytearray) -> Exported:
    """The program that `Exported.serialize` wrote. No code in it is run.

    Args:
      blob: the bytes.

    Raises:
      TypeError: they are no bytes.
      ValueError: they are damaged, of another version, or were written with another `enable_x64`.
    """
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeError(f"deserialize: blob must be bytes, got {type(blob).__name__}")
    blob = bytes(blob)
    start = len(_MAGIC) + _DIGEST
    if not blob.startswith(_MAGIC) or len(blob) < start + 8:
        raise ValueError("deserialize: this is no exported program, or it is cut short")
    if hashlib.sha256(blob[start:]).digest() != blob[len(_MAGIC) : start]:
        raise ValueError("deserialize: the bytes are damaged, as their checksum tells")
    try:
        return _read(blob[start:])
    except Exception as e:  # bytes made on purpose have right checksums
        raise ValueError(f"deserialize: the program cannot be read: {e}") from None


def _read(body: bytes) -> Exported:
    """The program in bytes that may be anything; any exception tells that they are none."""
    size = int.from_bytes(body[:8], "little")
    if size > len(body) - 8:
        raise ValueError("it is cut short")
    header = json.loads(body[8 : 8 + size])
    if header["format"] != _FORMAT:
        raise ValueError(f"it has the format {header['format']}, this reads {_FORMAT}")
    if header["enable_x64"] != config.enable_x64:
        raise ValueError(f"it was exported with enable_x64={header['enable_x64']}")
    scope = _scope_with(header["constraints"], header["assumed"])
    consts = list(_read_arrays(header["consts"], body[8 + size :]))
    program = parse_jaxpr(header["program"], consts, scope)
    _check_program(program, ValueError)
    for difference in header["unequal"]:
        scope.undecided[parse_dimension(difference, scope)] = None
    in_tree, out_tree = (tree_flatten(_container(header[k], 0))[1] for k in ("in_tree", "out_tree"))
    ins, outs = tuple(program.in_avals), tuple(program.out_avals)
    if (in_tree.num_leaves, out_tree.num_leaves) != (len(ins), len(outs)):
        raise ValueError("its structures do not fit the program")
    name, platforms = str(header["fun_name"]), _checked_platforms("it", header["platforms"])
    return Exported(name, in_tree, ins, out_tree, outs, program, platforms)


def _checked_platforms(whose: str, platforms: Sequence[str]) -> tuple[str, ...]:
    if isinstance(platforms, str) or not set(platforms).issubset(_PLATFORMS):
        raise ValueError(f"{whose}: platforms must be some of {_PLATFORMS}, got {platforms!r}")
    return tuple(platforms)


_PLATFORMS = ("cpu", "hip", "cuda", "rocm", "gpu")
_DIGEST = 32  # bytes of the checksum
_DEPTH = 100  # of containers in containers
_MAGIC = b"amdjax-exported\n"
_FORMAT = 2


def _scope(avals: Sequence[Any]) -> SymbolicScope:
    dims = [d for a in avals for d in getattr(a, "shape", ()) if isinstance(d, Dim)]
    return dims[0].scope if dims else SymbolicScope()


def _assumed(scope: SymbolicScope) -> list[tuple[str, str]]:
    """What tracing took to hold, as texts of what is zero or at least zero."""
    negative = {polynomial.scale(a, -1) for a in scope.assumed}
    return [
        (polynomial.text(a), "==" if a in negative else ">=")
        for a in scope.assumed
        if a not in negative or a[0][1] > 0
    ]


def _scope_with(constraints: Sequence[str], assumed: Sequence[Any]) -> SymbolicScope:
    scope = SymbolicScope(constraints)
    for text, symbol in assumed:
        scope.assume(parse_dimension(text, scope), symbol)
    return scope


def _check_readable(program: ClosedJaxpr, text: str, scope: SymbolicScope) -> None:
    """Raise ValueError for a program that its text does not tell."""
    refuse = lambda why: ValueError(f"serialize: the program cannot be written: {why}")
    arrays = (np.ndarray, ConcreteArray)
    if any(not isinstance(c, arrays) or is_extended(get_aval(c)) for c in program.consts):
        raise refuse("a constant is no array of numbers")
    try:
        read = parse_jaxpr(text, program.consts, _scope_with(scope.constraints, _assumed(scope)))
        _check_program(program, refuse)
        _check_program(read, refuse)
    except ValueError as e:
        raise refuse(str(e)) from None
    if format_jaxpr(read, exact=True) != text:
        raise refuse("it reads back as another one")


def _check_program(program: ClosedJaxpr, refuse: Callable[[str], Exception]) -> None:
    """Raise for a program that is not well formed, or that its text does not tell."""
    if any(not isinstance(a, ShapedArray) or is_extended(a) for a in program.in_avals):
        raise refuse("an argument is no array of numbers")
    try:
        check_jaxpr(program)
    except JaxprTypeError as e:
        raise refuse(str(e)) from None
    _check_parts(program, refuse)


def _check_parts(program: Any, refuse: Callable[[str], Exception]) -> None:
    for eqn in program.eqns:
        name = eqn.primitive.name
        if isinstance(eqn.primitive.lowering, Host) and any(map(callable, eqn.params.values())):
            raise refuse(f"{name} calls a Python function")
        opaque = [k for k, v in eqn.params.items() if isinstance(v, Opaque)]
        if opaque and not name.startswith("custom_"):
            raise refuse(f"{name} has the parameter {opaque[0]}, which has no text")
        for value in eqn.params.values():
            for body in subjaxprs_of_value(value):
                if isinstance(body, ClosedJaxpr) and body.consts:
                    raise refuse(f"the program of {name} has constants of its own")
                _check_parts(body, refuse)


def _read_arrays(described: Sequence[Any], data: bytes) -> Iterator[ConcreteArray]:
    at = 0
    for name, shape in described:
        dtype = np.dtype(dtype_from_short_name(name))
        shape = tuple(map(operator.index, shape))
        count = math.prod(shape)
        if min(shape, default=0) < 0 or at + count * dtype.itemsize > len(data):
            raise ValueError("its constants are cut short")
        values = np.frombuffer(data, dtype, count, at).reshape(shape)
        if dtype.kind == "b" and values.view(np.uint8).max(initial=0) > 1:
            raise ValueError("a constant of dtype bool is neither 0 nor 1")
        yield asarray_concrete(values)
        at += count * dtype.itemsize
    if at != len(data):
        raise ValueError("it has more bytes than constants")


def _described(tree: PyTreeDef) -> Any:
    """A structure of tuples, lists and dictionaries in JSON."""

    def described(x: Any) -> Any:
        if x is None or type(x) is int:
            return x
        if type(x) in (tuple, list):
            return [type(x).__name__, *map(described, x)]
        if type(x) is dict and all(type(k) is str for k in x):
            return {key: described(value) for key, value in x.items()}
        raise ValueError(
            f"serialize: containers must be tuples, lists and dictionaries, got {type(x).__name__}"
        )

    return described(tree.unflatten(range(tree.num_leaves)))


def _container(described: Any, depth: int) -> Any:
    if depth > _DEPTH:
        raise ValueError(f"more than {_DEPTH} containers in containers")
    if isinstance(described, dict):
        return {key: _container(value, depth + 1) for key, value in described.items()}
    if isinstance(described, list):
        kind = {"tuple": tuple, "list": list}[described[0]]
        return kind([_container(value, depth + 1) for value in described[1:]])
    if described is None or type(described) is int:
        return described
    raise ValueError(f"{described!r} is no structure of arguments or results")
