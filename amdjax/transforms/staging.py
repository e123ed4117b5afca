"""Looking at programs without running them: `make_jaxpr`, `eval_shape`; scopes and evaluation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager
from typing import Any

from amdjax.core import source_info
from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray, register_aval
from amdjax.core.backend import get_backend
from amdjax.core.boundaries import api_boundary
from amdjax.core.context import context
from amdjax.core.dims import DimSize, SymbolicScope, scope_of, symbolic_dimension
from amdjax.core.dtypes import canonicalize_dtype, short_dtype_name
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_leaves, tree_map, tree_unflatten
from amdjax.core.ref import AbstractRef
from amdjax.core.sharding import Format, NamedSharding, PartitionSpec, Sharding
from amdjax.core.trace import Trace, Tracer, eval_trace, set_trace
from amdjax.transforms.axes import AxisData
from amdjax.transforms.batching import axis_env
from amdjax.transforms.flat import (
    FlatFunction,
    debug_info,
    described_aval,
    fun_name,
    join_args,
    positions_of,
    shaped,
    split_args,
)


class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist.

    Args:
      shape: the extents.
      dtype: anything `numpy.dtype` accepts.
      named_shape: accepted and ignored.
      sharding: a sharding, a specification or a format, kept as it is.
      weak_type: whether the dtype yields in promotion.
      is_ref: whether it stands for a reference to such an array.

        >>> amdjax.ShapeDtypeStruct((2, 3), "float32")
        ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("dtype", "is_ref", "shape", "sharding", "weak_type")

    def __init__(
        self, shape: Sequence[int], dtype: Any, *, named_shape: Any = None, sharding: Any = None,
        weak_type: bool = False, is_ref: bool = False,
    ):  # fmt: skip
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        if isinstance(shape, str):
            raise TypeError(
                f"ShapeDtypeStruct: shape must be a sequence, as ('b', 128), got the text {shape!r}"
            )
        if not (sharding is None or isinstance(sharding, (Format, PartitionSpec, Sharding))):
            raise ValueError(
                f"ShapeDtypeStruct: sharding must be a Sharding, a PartitionSpec or a Format, got "
                f"{sharding!r}"
            )
        self.shape = tuple(shape)
        self.dtype = canonicalize_dtype(dtype, allow_extended_dtype=True)
        self.sharding = sharding
        self.weak_type = weak_type
        self.is_ref = is_ref

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """What describes an array, or a scalar.

        Args:
          x: the array.

        Returns:
          The description.

        Example:
          >>> amdjax.ShapeDtypeStruct.like(np.zeros(3, np.int8))
          ShapeDtypeStruct(shape=(3,), dtype=int8)
        """
        aval = shaped(x)
        # Where an array is that operations may move is not part of what it is.
        movable = isinstance(x, ConcreteArray) and not x.committed
        weak, sharding = aval.weak_type, None if movable else getattr(x, "sharding", None)
        return cls(
            aval.shape,
            aval.dtype,
            sharding=sharding,
            weak_type=weak,
            is_ref=type(aval) is AbstractRef,
        )

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return ShapedArray(self.shape, self.dtype).size

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """The same with some of `shape`, `dtype`, `sharding`, `weak_type` changed.

        Args:
          changes: new values by name.

        Returns:
          A description.
        """
        fields = {name: changes.get(name, getattr(self, name)) for name in self.__slots__}
        return ShapeDtypeStruct(fields.pop("shape"), fields.pop("dtype"), **fields)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtypeStruct):
            return False
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.sharding, self.weak_type, self.is_ref

    def __repr__(self) -> str:
        name = getattr(self.dtype, "name", None) or short_dtype_name(self.dtype)
        laid = "" if self.sharding is None else f", sharding={self.sharding}"
        weak = ", weak_type=True" if self.weak_type else ""
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={name}{laid}{weak}{ref})"


register_aval(ShapeDtypeStruct, described_aval, abstract=True)


def with_read_shapes(leaves: Sequence[Any]) -> Sequence[Any]:
    """Descriptions of arguments in which texts among the dimensions are read, as variables of one
    scope: that of the other symbolic dimensions, if there are any.
    """
    if not any(type(x) is ShapeDtypeStruct and str in map(type, x.shape) for x in leaves):
        return leaves
    scope = scope_of(leaves) or SymbolicScope()
    return [_read(x, scope) if type(x) is ShapeDtypeStruct else x for x in leaves]


def _read(x: ShapeDtypeStruct, scope: SymbolicScope) -> ShapeDtypeStruct:
    try:
        dims: Sequence[Any] = x.shape
        return x.update(shape=[_read_size(d, scope) if isinstance(d, str) else d for d in dims])
    except (TypeError, ValueError) as e:
        raise type(e)(f"ShapeDtypeStruct of shape {x.shape}: {e}") from None


def _read_size(text: str, scope: SymbolicScope) -> DimSize:
    if text in ("_", "..."):
        raise ValueError(f"{text!r} is the size of an array that is given; name it, as 'n'")
    return symbolic_dimension(text, scope)


def typeof(x: Any) -> Any:
    """The abstract value of an array: its shape, dtype, whether that is weak, and its sharding.

    >>> print(amdjax.typeof(1.0))
    ~float32[]
    """
    sharding = getattr(x, "named", None)
    return shaped(x) if sharding is None else shaped(x).update(sharding=sharding)


def trace_function(
    kind: str, fun: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> tuple[ClosedJaxpr, PyTreeDef]:
    """The program of a function for arguments of the given types, and its result's structure.

    Args:
      kind: what it is traced for, for error messages.
      args: arrays, or things with a shape and a dtype.
      kwargs: the same.
    """
    leaves, in_tree = tree_flatten((tuple(args), kwargs))
    flat = FlatFunction(fun, in_tree)
    info = debug_info(kind, fun, args, kwargs)
    avals = [shaped(x) for x in with_read_shapes(leaves)]
    return trace_to_jaxpr(flat, avals, debug_info=info), flat.out_tree


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable[..., Any]:
    """A function that shows what `fun` does as a program.

    Args:
      static_argnums: positions of arguments that are not traced.
      axis_env: pairs of names and sizes of axes that collectives in `fun` may speak of.
      return_shape: whether to return the types of the results too.
      abstracted_axes: accepted and ignored.

    Returns:
      A function with the arguments of `fun` that returns a `ClosedJaxpr`, or a pair of it and a
      pytree of `ShapeDtypeStruct`s.

        >>> print(amdjax.make_jaxpr(lambda x: amdjax.lax.sin(x))(1.0))
        { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    """
    numbers = positions_of(static_argnums)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")

    @functools.wraps(fun)
    @api_boundary
    def traced(*args: Any, **kwargs: Any) -> Any:
        positions = [n % len(args) for n in numbers if -len(args) <= n < len(args)]
        static, dynamic = split_args(args, positions)

        def call(*values: Any, **kwargs: Any) -> Any:
            return fun(*join_args(positions, static, values), **kwargs)

        functools.update_wrapper(call, fun)
        with _axes(axis_env or ()):
            function = call if positions else fun
            closed, out_tree = trace_function("make_jaxpr", function, dynamic, kwargs)
        if not return_shape:
            return closed
        return closed, _structs(closed.out_avals, out_tree)

    traced.__name__ = f"make_jaxpr({fun_name(fun)})"
    traced.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', fun_name(fun))})"
    return traced


@contextmanager
def _axes(named: Sequence[tuple[Any, int]]) -> Iterator[None]:
    if not named:
        yield
        return
    with axis_env(AxisData(*named[0])), _axes(named[1:]):
        yield


def _structs(avals: Sequence[Any], tree: PyTreeDef, shardings: Sequence[Any] = ()) -> Any:
    structs = [
        ShapeDtypeStruct(a.shape, a.dtype, sharding=s, weak_type=a.weak_type)
        for a, s in itertools.zip_longest(avals, shardings)
    ]
    return tree_unflatten(tree, structs)


def _explicit_shardings(closed: ClosedJaxpr, arguments: Sequence[Any]) -> Sequence[Any]:
    """The shardings of results, if some argument is divided along explicit axes of a mesh."""
    named = [getattr(x, "sharding", None) for x in arguments]
    if any(isinstance(s, NamedSharding) and s.mesh.explicit_axes for s in named):
        return get_backend().shardings_as_traced(closed, arguments)
    return ()


@api_boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of a function's result, without computing it.

    Args:
      *args: arrays, or things with a shape and a dtype such as `ShapeDtypeStruct`.
      **kwargs: the same.

    Returns:
      A pytree of `ShapeDtypeStruct`s; those that `fun` returns itself are kept. They have a
      sharding where arguments are divided along explicit axes of a mesh.

    Raises:
      ValueError: such an argument is on another mesh than the current one.

        >>> x = amdjax.ShapeDtypeStruct((2, 3), "float32")
        >>> amdjax.eval_shape(lambda x: amdjax.lax.transpose(x, (1, 0)), x)
        ShapeDtypeStruct(shape=(3, 2), dtype=float32)
    """
    if hasattr(fun, "trace") and hasattr(fun, "eval_shape"):  # compiled: it knows its shardings
        return fun.eval_shape(*args, **kwargs)
    given: dict[int, ShapeDtypeStruct] = {}

    @functools.wraps(fun)
    def with_values(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten(fun(*args, **kwargs))
        given.update((i, x) for i, x in enumerate(leaves) if isinstance(x, ShapeDtypeStruct))
        return tree_unflatten(tree, [0 if i in given else x for i, x in enumerate(leaves)])

    closed, out_tree = trace_function("eval_shape", with_values, args, kwargs)
    shardings = _explicit_shardings(closed, tree_leaves((args, kwargs)))
    structs = _structs(closed.out_avals, out_tree, shardings)
    if not given:
        return structs
    leaves, tree = tree_flatten(structs)
    return tree_unflatten(tree, [given.get(i, x) for i, x in enumerate(leaves)])


class named_scope(ContextDecorator):
    """Name the operations inside a block, or of a function it decorates.

    Names appear in the compiler's dumps and in profiles.

    Args:
      name: the name.

        >>> with amdjax.named_scope("layer1"):
        ...     y = amdjax.lax.sin(1.0)
    """

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"named_scope name argument must be a string, got {name!r}.")
        self.name = name
        self._scopes: list[Any] = []

    def __enter__(self) -> named_scope:
        scope = source_info.scope(self.name)
        scope.__enter__()
        self._scopes.append(scope)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._scopes.pop().__exit__(*exc)


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Name the operations of a function.

    Args:
      fun: the function.
      name: the name; by default the function's own.

    Returns:
      A function with the same arguments and results.

        >>> double = amdjax.named_call(lambda x: amdjax.lax.add(x, x), name="double")
        >>> print(double(2.0))
        4.0
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    scope = name if name is not None else fun_name(fun)

    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        with source_info.scope(scope):
            return fun(*args, **kwargs)

    return named


class KnownTrace(Trace):
    """Computes what does not depend on values being traced, and leaves the rest to its parent."""

    __slots__ = ()

    def target(self, args: Any) -> Trace:
        return self.parent if any(isinstance(x, Tracer) for x in args) else eval_trace

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        with set_trace(self.target(args)) as target:
            return target.process_primitive(primitive, args, params)

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        if self.target(args) is eval_trace:
            return fun(*args)  # which may speak of traced values
        with set_trace(self.parent):
            return self.parent.process_custom_jvp_call(primitive, fun, jvp, args, params)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        if self.target(args) is eval_trace:
            return fun(*args)
        with set_trace(self.parent):
            return self.parent.process_custom_vjp_call(primitive, fun, fwd, bwd, args, params)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Inside, operations on known values are computed at once, even while a function is traced.

    Operations on traced values are recorded as ever.

    >>> def f(x):
    ...     with amdjax.ensure_compile_time_eval():
    ...         n = int(amdjax.lax.add(1, 2))  # known while tracing
    ...     return amdjax.lax.mul(x, float(n))
    >>> print(amdjax.make_jaxpr(f)(1.0))
    { lambda ; a:f32[]. let b:f32[] = mul a 3.0:f32[] in (b,) }
    """
    outer = context.trace
    context.trace = outer if outer is eval_trace else KnownTrace(outer)
    try:
        yield
    finally:
        context.trace = outer


def block_until_ready(x: Any) -> Any:
    """Wait until every array in a pytree is computed.

    Args:
      x: a pytree; leaves that are not arrays are passed over.

    Returns:
      `x`.

        >>> print(amdjax.block_until_ready(amdjax.lax.add(1, 2)))
        3
    """

    def wait(leaf: Any) -> Any:
        if not isinstance(leaf, Tracer) and hasattr(leaf, "block_until_ready"):
            return leaf.block_until_ready()
        return leaf

    return tree_map(wait, x)
