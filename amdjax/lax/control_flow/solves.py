"""Solvers with implicit derivatives: `custom_root`, `custom_linear_solve`.

The derivative of a solution follows from the equation that it solves, not from the steps of the
solver, which may be a `while_loop` or call Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.jaxpr import ClosedJaxpr, eval_jaxpr, jaxpr_as_fun, memoize_on_jaxpr
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_unflatten
from amdjax.lax.control_flow._common import (
    Body,
    Traced,
    check_callable,
    checked_leaves,
    join_consts,
    leaf_structure,
    same_type,
    split_list,
    trace_body,
)
from amdjax.lax.elementwise import neg
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.batching import batch_jaxpr
from amdjax.transforms.differentiate import linearize
from amdjax.transforms.forward import jvp_flat
from amdjax.transforms.reverse import transpose_jaxpr
from amdjax.transforms.zero import Zero, add_tangents, instantiate_zeros, is_undefined_primal

__all__ = [
    "custom_linear_solve", "custom_linear_solve_p", "custom_root", "custom_root_p",
    "linear_solve_p",
]  # fmt: skip

# Both primitives take `num_consts` constants, which all of their programs take first, and then the
# initial guess or the right-hand side. So the program `solve` takes exactly the operands.

Solver = Callable[[Callable[..., Any], Any], Any]


def _solver(name: str) -> Primitive:
    """A primitive that calls its program `solve`."""
    primitive = Primitive(name, multiple_results=True)
    primitive.lowering = Control("call", jaxpr_param="solve")
    primitive.def_abstract_eval(lambda *_, solve, **__: solve.out_avals)
    primitive.def_effects(lambda *_, solve, **__: solve.effects)
    return primitive


custom_root_p = _solver("custom_root")


@custom_root_p.def_jvp
def _root_jvp(
    primals: Any, tangents: Any, *, f: ClosedJaxpr, solve: ClosedJaxpr, tangent_solve: ClosedJaxpr,
    num_consts: int,
) -> Any:  # fmt: skip
    # f(c, x(c)) = 0, so its derivative vanishes: f_c dc + f_x dx = 0.
    out = custom_root_p.bind(
        *primals, f=f, solve=solve, tangent_solve=tangent_solve, num_consts=num_consts
    )
    solution, aux = split_list(out, len(f.out_avals))
    consts, const_dots = primals[:num_consts], tangents[:num_consts]
    still = [Zero.of(x) for x in solution]
    _, change = jvp_flat(jaxpr_as_fun(f), [*consts, *solution], [*const_dots, *still])
    aux_dots = [Zero.of(x) for x in aux]
    if all(type(t) is Zero for t in change):
        return out, [*still, *aux_dots]
    change = [instantiate_zeros(t) for t in change]
    dots = jaxpr_as_fun(tangent_solve)(*consts, *solution, *change)
    return out, [*map(neg, dots), *aux_dots]


@custom_root_p.def_batch
def _root_batch(
    axis: AxisData, args: Any, dims: Any, *, num_consts: int, **jaxprs: ClosedJaxpr | None
) -> Any:
    return _batch_solver(custom_root_p, axis, args, dims, num_consts, jaxprs)


def _batch_solver(
    primitive: Primitive, axis: AxisData, args: Any, dims: Any, num_consts: int,
    jaxprs: dict[str, ClosedJaxpr | None],
) -> Any:  # fmt: skip
    """Bind a solver on batches. Unknowns, right-hand sides and results are all batches then."""
    consts = tuple(d is not None for d in dims[:num_consts])
    batched = {name: j and _batch_program(j, axis, consts) for name, j in jaxprs.items()}
    places = [0 if b else None for b in consts] + [0] * (len(args) - num_consts)
    moved = [batch_at(axis, x, d, place) for x, d, place in zip(args, dims, places)]
    outs = primitive.bind(*moved, num_consts=num_consts, **batched)
    return outs, [0] * len(outs)


@memoize_on_jaxpr
def _batch_program(jaxpr: ClosedJaxpr, axis: AxisData, consts: tuple[bool, ...]) -> ClosedJaxpr:
    others = [True] * (len(jaxpr.in_avals) - len(consts))
    return batch_jaxpr(jaxpr, axis, [*consts, *others], True)[0]


custom_linear_solve_p = _solver("custom_linear_solve")


linear_solve_p = custom_linear_solve_p  # its name in JAX


@custom_linear_solve_p.def_jvp
def _solve_jvp(
    primals: Any, tangents: Any, *, matvec: ClosedJaxpr, num_consts: int, **params: Any
) -> Any:
    # A x = b, so A dx = db - dA x.
    params = {**params, "matvec": matvec, "num_consts": num_consts}
    out = custom_linear_solve_p.bind(*primals, **params)
    consts, const_dots = primals[:num_consts], tangents[:num_consts]
    solution, aux = split_list(out, len(matvec.out_avals))
    still = [Zero.of(x) for x in solution]
    _, change = jvp_flat(jaxpr_as_fun(matvec), [*consts, *solution], [*const_dots, *still])
    negated = [t if type(t) is Zero else neg(t) for t in change]
    right = [add_tangents(db, t) for db, t in zip(tangents[num_consts:], negated)]
    if all(type(t) is Zero for t in right):
        return out, [*still, *(Zero.of(x) for x in aux)]
    dots = custom_linear_solve_p.bind(*consts, *map(instantiate_zeros, right), **params)
    return out, [*dots[: len(solution)], *(Zero.of(x) for x in aux)]


@custom_linear_solve_p.def_transpose
def _solve_transpose(
    cts: Any, *args: Any, matvec: ClosedJaxpr, vecmat: ClosedJaxpr | None, solve: ClosedJaxpr,
    transpose_solve: ClosedJaxpr | None, num_consts: int,
) -> list[Any]:  # fmt: skip
    if transpose_solve is None:
        raise TypeError(
            "custom_linear_solve: transpose_solve required for backwards mode automatic "
            "differentiation; or `symmetric=True` if the linear map is symmetric."
        )
    consts, right = split_list(args, num_consts)
    if any(map(is_undefined_primal, consts)):
        raise NotImplementedError("custom_linear_solve is linear in `b` only")
    count = len(right)
    out = custom_linear_solve_p.bind(
        *consts, *map(instantiate_zeros, cts[:count]), matvec=vecmat, vecmat=matvec,
        solve=transpose_solve, transpose_solve=solve, num_consts=num_consts,
    )  # fmt: skip
    found = [ct if is_undefined_primal(b) else None for ct, b in zip(out, right)]
    return [None] * num_consts + found


@custom_linear_solve_p.def_batch
def _solve_batch(
    axis: AxisData, args: Any, dims: Any, *, num_consts: int, **jaxprs: ClosedJaxpr | None
) -> Any:
    return _batch_solver(custom_linear_solve_p, axis, args, dims, num_consts, jaxprs)


# The functions


@api_boundary
def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Solver,
    tangent_solve: Solver,
    has_aux: bool = False,
) -> Any:
    """Find a root of a function; derivatives come from the implicit function theorem.

    They are taken with respect to what `f` closes over; the solver is not differentiated.

    Args:
      f: takes a pytree of arrays and returns one of the same structure, shapes and dtypes.
      initial_guess: where the solver starts.
      solve: `solve(f, initial_guess) -> x` with `f(x) == 0`.
      tangent_solve: `tangent_solve(g, y) -> x` with `g(x) == y` for a linear `g`, the derivative
        of `f` at the root. For scalars `lambda g, y: y / g(1.0)`.
      has_aux: whether `solve` returns a pair of the solution and further results, which have no
        derivative.

    Raises:
      TypeError: an argument is not callable, or results differ from `initial_guess` in structure
        or type.

        >>> from amdjax import grad, lax
        >>> def newton(f, x):
        ...     return lax.fori_loop(0, 20, lambda i, x: x - f(x) / (2 * x), x)
        >>> def square_root(a):
        ...     return lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
        >>> f"{square_root(4.0):.3f} {grad(square_root)(4.0):.3f}"
        '2.000 0.250'
    """
    check_callable("custom_root", f=f, solve=solve, tangent_solve=tangent_solve)
    leaves, tree = checked_leaves("custom_root", "initial_guess", initial_guess)
    avals = [get_aval(x) for x in leaves]

    def solve_tangents(x: Any, y: Any) -> Any:
        return tangent_solve(linearize(f, x)[1], y)

    def trace(name: str, fun: Any, call: Any, count: int = 1, aux: bool = False) -> Traced:
        body = Body(f"custom_root {name}", fun, call)
        traced = trace_body(body, leaf_structure(*[tree] * count), avals * count, cached=False)
        _check_result("custom_root", name, "initial_guess", traced, (tree, avals), aux)
        return traced

    traced_f = trace("f", f, lambda x: f(x))
    traced_solve = trace("solve", solve, lambda x: solve(f, x), aux=has_aux)
    traced_tangent = trace("tangent_solve", tangent_solve, solve_tangents, 2)
    parts = traced_f, traced_solve, traced_tangent
    programs, consts = join_consts([t.jaxpr for t in parts], [t.consts for t in parts])
    outs = custom_root_p.bind(
        *[*consts, *leaves],
        f=programs[0],
        solve=programs[1],
        tangent_solve=programs[2],
        num_consts=len(consts),
    )
    return tree_unflatten(traced_solve.out_tree, outs)


@api_boundary
def custom_linear_solve(
    matvec: Callable[[Any], Any], b: Any, solve: Solver, transpose_solve: Solver | None = None,
    symmetric: bool = False, has_aux: bool = False,
) -> Any:  # fmt: skip
    """Solve a linear equation given by a function; derivatives come from the equation.

    They are taken with respect to `b` and to what `matvec` closes over; the solver is not
    differentiated.

    Args:
      matvec: a linear function of a pytree of arrays like `b`, which returns one like it.
      b: the right-hand side.
      solve: `solve(matvec, b) -> x` with `matvec(x) == b`.
      transpose_solve: `transpose_solve(vecmat, b) -> x` with `vecmat(x) == b`, where `vecmat` is
        the transpose of `matvec`; needed for reverse mode.
      symmetric: whether `matvec` is its own transpose; then `solve` serves for both.
      has_aux: whether the solvers return a pair of the solution and further results, which have
        no derivative.

    Raises:
      TypeError: an argument is not callable, or results differ from `b` in structure.
      ValueError: results differ from `b` in shape.

        >>> d = np.array([2.0, 4.0], np.float32)
        >>> lax.custom_linear_solve(
        ...     lambda x: d * x, np.ones(2, np.float32), lambda mv, b: b / d, symmetric=True
        ... ).tolist()
        [0.5, 0.25]
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    check_callable("custom_linear_solve", matvec=matvec, solve=solve)
    leaves, tree = checked_leaves("custom_linear_solve", "b", b)
    avals = [get_aval(x) for x in leaves]
    in_tree = leaf_structure(tree)

    def trace(name: str, fun: Any, call: Any, aux: bool = False) -> Traced:
        body = Body(f"custom_linear_solve {name}", fun, call)
        traced = trace_body(body, in_tree, avals, cached=False)
        _check_result("custom_linear_solve", name, "b", traced, (tree, avals), aux)
        return traced

    parts: dict[str, Traced] = {
        "matvec": trace("matvec", matvec, lambda x: matvec(x)),
        "solve": trace("solve", solve, lambda x: solve(matvec, x), has_aux),
    }
    if transpose_solve is not None:
        check_callable("custom_linear_solve", transpose_solve=transpose_solve)
        parts["vecmat"] = parts["matvec"] if symmetric else _transposed(parts["matvec"])
        vecmat = matvec if symmetric else _as_function(parts["vecmat"])
        call = lambda x: transpose_solve(vecmat, x)
        parts["transpose_solve"] = trace("transpose_solve", transpose_solve, call, has_aux)
    programs, consts = join_consts(
        [t.jaxpr for t in parts.values()], [t.consts for t in parts.values()]
    )
    jaxprs = {"vecmat": None, "transpose_solve": None, **dict(zip(parts, programs))}
    outs = custom_linear_solve_p.bind(*consts, *leaves, num_consts=len(consts), **jaxprs)
    return tree_unflatten(parts["solve"].out_tree, outs)


def _transposed(matvec: Traced) -> Traced:
    """The transpose of a linear map, with the same constants."""
    count = len(matvec.consts)
    linear = [i >= count for i in range(len(matvec.jaxpr.in_avals))]
    transposed, _ = transpose_jaxpr(matvec.jaxpr, linear, instantiate=True)
    return matvec._replace(jaxpr=transposed)


def _as_function(traced: Traced) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        leaves, tree = tree_flatten(x)
        outs = eval_jaxpr(traced.jaxpr.jaxpr, traced.jaxpr.consts, *traced.consts, *leaves)
        return tree_unflatten(tree, outs)

    return fun


def _check_result(
    what: str, name: str, argument: str, traced: Traced, wanted: tuple[PyTreeDef, Sequence[Any]],
    has_aux: bool,
) -> None:  # fmt: skip
    """Raise an error unless a function returned something like the argument."""
    tree, avals = wanted
    out_tree = traced.out_tree
    if has_aux:
        children = out_tree.children()
        if len(children) != 2:
            raise TypeError(
                f"{what}: with has_aux=True {name} must return a pair (solution, aux), got "
                f"{out_tree}."
            )
        out_tree = children[0]
    if out_tree != tree:
        raise TypeError(
            f"{what}: {name}() output pytree structure must be that of {argument}, {tree}, but is "
            f"{out_tree}."
        )
    for got, aval in zip(traced.jaxpr.out_avals, avals):
        if isinstance(got, ShapedArray) and got.shape != aval.shape:
            raise ValueError(
                f"{what}: {name}() output shapes must be those of {argument}, {aval.str_short()}, "
                f"but it returned {got.str_short()}."
            )
        if not same_type(got, aval):
            raise TypeError(
                f"{what}: {name}() output dtypes must be those of {argument}, {aval.str_short()}, "
                f"but it returned {got.str_short()}."
            )
