"""`sparsify`: functions of arrays, applied to sparse ones.

A rule of `sparse_rules` takes the operands of an operation, of which one at least is sparse, and
returns its results. Operations that would fill in the zeros have none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.aval import ShapedArray, get_aval, register_aval
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.context import context
from amdjax.core.dtypes import register_array_type
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, Literal
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_structure, tree_unflatten
from amdjax.core.trace import Trace, Tracer, set_trace
from amdjax.experimental.sparse import layout, products, shapes, structure
from amdjax.experimental.sparse.base import JAXSparse
from amdjax.experimental.sparse.bcoo import BCOO
from amdjax.experimental.sparse.bcsr import BCSR
from amdjax.transforms.staging import eval_shape
from amdjax.transforms.zero import copy_p

_is_sparse = lambda x: isinstance(x, JAXSparse)

sparse_rules: dict[str, Callable[..., Any]] = {}
"""By the name of the primitive."""

_DENSIFY = frozenset((
    "acos", "acosh", "bessel_i0e", "cos", "cosh", "digamma", "eq", "erf_inv", "erfc", "exp",
    "exp2", "ge", "gt", "le", "lgamma", "log", "logistic", "lt", "ne", "pow", "rsqrt", "not",
))  # fmt: skip


def _refuse(name: str) -> None:
    text = f"sparse rule for {name} is not implemented"
    if name in _DENSIFY:
        text += (
            " because it would result in dense output. If this is your intent, use sparse.todense()"
            " to convert your arguments to a dense array"
        )
    raise NotImplementedError(f"{text}.")


def _apply(primitive: Primitive, values: Sequence[Any], params: dict[str, Any]) -> Any:
    """An operation on arrays that may be sparse, under the current trace."""
    if not any(map(_is_sparse, values)):
        return primitive.bind(*values, **params)
    rule = sparse_rules.get(primitive.name)
    if rule is None:
        _refuse(primitive.name)
        raise AssertionError
    return rule(*values, **params)


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of a program on arrays that may be sparse."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    read = lambda x: x.val if type(x) is Literal else env[x]
    for eqn in jaxpr.eqns:
        out = _apply(eqn.primitive, [read(x) for x in eqn.invars], eqn.params)
        env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else [out], strict=True))
    return [read(x) for x in jaxpr.outvars]


def _call(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    return _evaluate(closed.jaxpr, closed.consts, args)


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """A function that takes sparse arrays where `f` takes arrays.

    Args:
      f: a function of pytrees of arrays.
      use_tracer: run it on tracers, instead of tracing it first for arrays of these shapes.

    Returns:
      A function of pytrees of arrays that may be sparse, `BCOO` or `BCSR`; its results are sparse
      where they can be.

    Raises:
      NotImplementedError: an operation would fill in the zeros, or has no rule.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.sparsify(lambda m, v: jnp.sin(m).T @ v)(m, jnp.ones(2)).round(3)
        Array([0.141, 0.909], dtype=float32)
    """

    @functools.wraps(f)
    def sparse_f(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten((args, kwargs), is_leaf=_is_sparse)
        trees: list[Any] = []

        def flat(*values: Any) -> list[Any]:
            given, named = tree_unflatten(tree, values)
            outs, out_tree = tree_flatten(f(*given, **named), is_leaf=_is_sparse)
            trees.append(out_tree)
            return outs

        if use_tracer:
            outs = _traced(flat, leaves)
        else:
            closed = trace_to_jaxpr(flat, [_aval(x) for x in leaves])
            outs = _evaluate(closed.jaxpr, closed.consts, leaves)
        return tree_unflatten(trees[-1], outs)

    return sparse_f


def _aval(x: Any) -> Any:
    return ShapedArray(x.shape, x.dtype) if _is_sparse(x) else get_aval(x)


class SparseTracer(Tracer):
    """A value inside a sparsified function that runs on tracers.

    Attributes:
      value: the array, which may be sparse.

    Args:
      trace: the trace it belongs to.
      value: the array, which may be sparse.
    """

    __slots__ = ("aval", "value")

    def __init__(self, trace: SparseTrace, value: Any):
        self._trace = trace
        self.value = value
        self.aval = _aval(value)

    def __repr__(self) -> str:
        return f"SparseTracer({self.value!r})"


register_aval(SparseTracer, lambda x: x.aval)
register_array_type(SparseTracer)


class SparseTrace(Trace):
    """Applies the rules of sparse arrays in its parent."""

    __slots__ = ()

    def _value(self, x: Any) -> Any:
        return x.value if type(x) is SparseTracer and x._trace is self else x

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        """Apply the rule of a primitive."""
        with set_trace(self.parent):
            out = _apply(primitive, [self._value(x) for x in args], params)
        if primitive.multiple_results:
            return [SparseTracer(self, x) for x in out]
        return SparseTracer(self, out)

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        """Call the function itself; what is sparse is not differentiated here."""
        return fun(*args)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        """Call the function itself; what is sparse is not differentiated here."""
        return fun(*args)


def _traced(flat: Callable[..., list[Any]], leaves: Sequence[Any]) -> list[Any]:
    trace = SparseTrace(context.trace)
    with set_trace(trace):
        outs = flat(*[SparseTracer(trace, x) for x in leaves])
    trace.alive = False
    return [trace._value(x) for x in outs]


# Rules


def _rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        sparse_rules.update(dict.fromkeys(names, rule))
        return rule

    return register


def _unique(mat: Any) -> Any:
    """The array with one entry at each place, so that functions may be applied to entries."""
    return mat if mat.unique_indices else mat.sum_duplicates(mat.nse, remove_zeros=False)


def _of_entries(primitive: Primitive, linear: bool) -> None:
    def rule(mat: Any, **params: Any) -> Any:
        mat = mat if linear else _unique(mat)
        return mat._with(primitive.bind(mat.data, **params))

    sparse_rules[primitive.name] = rule


for _p in (lax.neg_p, lax.real_p, lax.imag_p, copy_p, lax.reduce_precision_p):
    _of_entries(_p, linear=_p is not lax.reduce_precision_p)
for _p in (
    lax.abs_p, lax.asin_p, lax.asinh_p, lax.atan_p, lax.atanh_p, lax.bessel_i1e_p, lax.cbrt_p,
    lax.ceil_p, lax.conj_p, lax.erf_p, lax.expm1_p, lax.floor_p, lax.log1p_p, lax.round_p,
    lax.sign_p, lax.sin_p, lax.sinh_p, lax.sqrt_p, lax.square_p, lax.tan_p, lax.tanh_p,
    lax.convert_element_type_p,
):  # fmt: skip
    _of_entries(_p, linear=False)


@_rule("integer_pow")
def _integer_pow(mat: Any, *, y: int) -> Any:
    if y <= 0:
        raise NotImplementedError(f"sparse rule for integer_pow with non-positive exponent {y}")
    mat = mat if y == 1 else _unique(mat)
    return mat._with(lax.integer_pow(mat.data, y))


def _bcoo(x: Any) -> Any:
    return x.to_bcoo() if isinstance(x, BCSR) else x


@_rule("add", "add_any")
def _add(x: Any, y: Any) -> Any:
    if not (_is_sparse(x) and _is_sparse(y)):
        mat, dense = (x, y) if _is_sparse(x) else (y, x)
        if np.shape(dense) != mat.shape:
            raise NotImplementedError(
                "Addition between a sparse array X and a dense array Y is not implemented unless "
                f"their shapes are equal, got {mat.shape} and {np.shape(dense)}: the sum would "
                "be dense. Use sparse.todense() if that is your intent"
            )
        return mat.todense() + dense
    if isinstance(x, BCOO) and isinstance(y, BCOO) and x.indices is y.indices:
        return x._with(lax.add(x.data, y.data))
    if isinstance(x, BCSR) and isinstance(y, BCSR):
        if x.indices is y.indices and x.indptr is y.indptr:
            return x._with(lax.add(x.data, y.data))
        return x + y
    return _bcoo(x) + _bcoo(y)


@_rule("sub")
def _sub(x: Any, y: Any) -> Any:
    return _add(x, -y)


@_rule("mul")
def _mul(x: Any, y: Any) -> Any:
    if _is_sparse(x) and _is_sparse(y):
        x, y = _bcoo(x), _bcoo(y)
        same = x.indices is y.indices and x.unique_indices and x.n_dense == y.n_dense
        return x._with(lax.mul(x.data, y.data)) if same else products.bcoo_multiply_sparse(x, y)
    mat, dense = (x, y) if _is_sparse(x) else (y, x)
    if np.ndim(dense) == 0:
        return mat._with(lax.mul(mat.data, lax.convert_element_type(dense, mat.dtype)))
    entries = _bcoo(mat)
    found = entries._with(products.bcoo_multiply_dense(entries, dense))
    return BCSR.from_bcoo(found) if isinstance(mat, BCSR) else found


@_rule("div")
def _div(x: Any, y: Any) -> Any:
    if _is_sparse(y):
        raise NotImplementedError("sparse rule for div with a sparse divisor is not implemented.")
    if np.ndim(y) == 0:
        return x._with(lax.div(x.data, lax.convert_element_type(y, x.dtype)))
    mat = _unique(_bcoo(x))
    found = mat._with(lax.div(mat.data, layout.bcoo_extract(mat, y).data))
    return BCSR.from_bcoo(found) if isinstance(x, BCSR) else found


@_rule("transpose")
def _transpose(mat: Any, *, permutation: Sequence[int]) -> Any:
    return mat.transpose(tuple(permutation))


@_rule("squeeze")
def _squeeze(mat: Any, *, dimensions: Sequence[int]) -> Any:
    return structure.bcoo_squeeze(_bcoo(mat), dimensions=dimensions)


@_rule("rev")
def _rev(mat: Any, *, dimensions: Sequence[int]) -> Any:
    return structure.bcoo_rev(_bcoo(mat), dimensions)


@_rule("reshape")
def _reshape(mat: Any, *, new_sizes: Any, dimensions: Any = None, **_: Any) -> Any:
    return shapes.bcoo_reshape(_bcoo(mat), new_sizes=new_sizes, dimensions=dimensions)


@_rule("broadcast_in_dim")
def _broadcast(mat: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    return shapes.bcoo_broadcast_in_dim(
        _bcoo(mat), shape=shape, broadcast_dimensions=broadcast_dimensions
    )


@_rule("concatenate")
def _concatenate(*operands: Any, dimension: int) -> Any:
    if not all(map(_is_sparse, operands)):
        raise NotImplementedError("concatenation of sparse and dense operands")
    found = shapes.bcoo_concatenate([_bcoo(x) for x in operands], dimension=dimension)
    return BCSR.from_bcoo(found) if all(isinstance(x, BCSR) for x in operands) else found


@_rule("slice")
def _slice(mat: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    return shapes.bcoo_slice(
        _bcoo(mat), start_indices=start_indices, limit_indices=limit_indices, strides=strides
    )


@_rule("dynamic_slice")
def _dynamic_slice(mat: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    return structure.bcoo_dynamic_slice(_bcoo(mat), starts, slice_sizes)


@_rule("gather")
def _gather(mat: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: Any, **_: Any) -> Any:
    return structure.bcoo_gather(_bcoo(mat), indices, dimension_numbers, slice_sizes)


@_rule("dot_general")
def _dot_general(
    x: Any, y: Any, *, dimension_numbers: Any, preferred_element_type: Any = None, **_: Any
) -> Any:
    return products.bcoo_dot_general(
        _bcoo(x), _bcoo(y), dimension_numbers=dimension_numbers,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


@_rule("conv_general_dilated")
def _conv(x: Any, kernel: Any, **params: Any) -> Any:
    wanted = (
        "window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers",
        "feature_group_count", "batch_group_count", "preferred_element_type",
    )  # fmt: skip
    return structure.bcoo_conv_general_dilated(
        _bcoo(x), _bcoo(kernel), **{name: params[name] for name in wanted if name in params}
    )


@_rule("reduce_sum")
def _reduce_sum(mat: Any, *, axes: Sequence[int], **_: Any) -> Any:
    mat = _bcoo(mat)
    found = products.bcoo_reduce_sum(mat, axes=axes)
    found = found._with(found.data.astype(mat.dtype))  # no wider, as `lax.reduce_sum`
    return found.todense() if len(axes) == mat.ndim else found


@_rule("todense")
def _todense(mat: Any, *, tree: Any) -> Any:
    return mat.todense()


@_rule("jit", "closed_call", "checkpoint", "custom_jvp_call", "custom_vjp_call", "named_call")
def _called(*args: Any, **params: Any) -> list[Any]:
    names = ("jaxpr", "call_jaxpr")
    program = next(params[name] for name in names if name in params)
    return (
        _call(program, args) if isinstance(program, ClosedJaxpr) else _evaluate(program, (), args)
    )


@_rule("while")
def _while(
    *args: Any, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr, cond_nconsts: int,
    body_nconsts: int,
) -> list[Any]:  # fmt: skip
    n = cond_nconsts + body_nconsts
    cond_consts, body_consts = args[:cond_nconsts], args[cond_nconsts:n]
    return lax.while_loop(
        lambda carry: _call(cond_jaxpr, [*cond_consts, *carry])[0],
        lambda carry: _call(body_jaxpr, [*body_consts, *carry]),
        list(args[n:]),
    )


@_rule("scan")
def _scan(
    *args: Any, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int, length: int, reverse: bool,
    unroll: Any, **_: Any,
) -> list[Any]:  # fmt: skip
    consts, start = args[:num_consts], list(args[num_consts : num_consts + num_carry])
    xs = list(args[num_consts + num_carry :])
    if any(_is_sparse(x) and not x.n_batch for x in xs):
        raise NotImplementedError("sparse rule for scan over a sparse axis: give it batches")

    def body(carry: Any, x: Any) -> Any:
        outs = _call(jaxpr, [*consts, *carry, *x])
        return outs[:num_carry], outs[num_carry:]

    carry, ys = lax.scan(body, start, xs, length=length, reverse=reverse, unroll=unroll)
    return [*carry, *ys]


@_rule("cond")
def _cond(index: Any, *operands: Any, branches: Sequence[ClosedJaxpr], **_: Any) -> list[Any]:
    functions = [functools.partial(lambda b, *xs: _call(b, xs), b) for b in branches]
    kinds = [tree_structure(eval_shape(f, *operands)) for f in functions]
    if len(set(kinds)) > 1:
        raise TypeError(
            "sparsified true_fun output must have same type structure as sparsified false_fun "
            f"output, got {kinds[-1]} and {kinds[0]}"
        )
    return lax.switch(index, functions, *operands)


_public_surface(globals())
del _p
