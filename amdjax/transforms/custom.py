"""Functions with derivatives of their own: `custom_jvp`, `custom_vjp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from amdjax.core.array import asarray_concrete
from amdjax.core.aval import get_aval, is_valid_value
from amdjax.core.boundaries import api_boundary
from amdjax.core.config import config
from amdjax.core.dtypes import float0
from amdjax.core.errors import UnexpectedTracerError
from amdjax.core.pytree import (
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
)
from amdjax.core.ref import identity_of_ref, is_ref, refuse_aliases
from amdjax.core.trace import Tracer
from amdjax.core.tracebacks import hide_internal_frames
from amdjax.transforms.custom_calls import custom_jvp_call_p, custom_vjp_call_p
from amdjax.transforms.discharge import held
from amdjax.transforms.flat import (
    argnums_of_names,
    argument_names,
    flatten_result,
    fun_name,
    join_args,
    positions_of,
    resolve_kwargs,
    split_args,
)
from amdjax.transforms.zero import (
    SymbolicZero,
    Zero,
    add_tangents,
    instantiate_zeros,
    zeros_like_aval,
)


def _nondiff_positions(fun: Any, argnums: Any, argnames: Any) -> tuple[int, ...]:
    return tuple(sorted({*positions_of(argnums), *argnums_of_names(fun, argnames)}))


_SETTERS = frozenset(("defjvp", "defjvps", "defvjp", "def_vmap"))


def rule_setter(custom: Any, name: str) -> Any:
    """The method of a function with rules that sets rules of the function it decorates."""
    fun = custom.__dict__.get("fun")
    if name in _SETTERS and hasattr(fun, name):
        return getattr(fun, name)
    raise AttributeError(f"{type(custom).__name__!r} object has no attribute {name!r}")


class _CustomFunction:
    """What `custom_jvp` and `custom_vjp` share: the function and its static arguments."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Any, nondiff_argnames: Any):
        if not callable(fun):
            raise TypeError(f"{type(self).__name__}: fun must be callable, got {fun!r}")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = _nondiff_positions(fun, nondiff_argnums, nondiff_argnames)

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else functools.partial(self, obj)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return rule_setter(self, name)

    def _split(self, args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        args = resolve_kwargs(self.fun, args, kwargs, type(self).__name__)
        count = len(args)
        positions = [i % count for i in self.nondiff_argnums if -count <= i < count]
        return split_args(args, positions)

    def _join(self, static: list[Any], others: list[Any]) -> list[Any]:
        count = len(static) + len(others)
        positions = [i % count for i in self.nondiff_argnums if -count <= i < count]
        return join_args(positions, static, others)


def _types_text(types: Any) -> str:
    """A pytree of types, without the marks of weak ones."""
    return str(tree_map(str, types)).replace("'", "").replace("~", "")


_NUMBERS = frozenset((bool, int, float, complex))


def _as_arrays(leaves: Iterable[Any]) -> list[Any]:
    """Values as functions and rules get them: numbers are arrays too."""
    return [
        asarray_concrete(x) if type(x) in _NUMBERS or isinstance(x, np.generic) else x
        for x in leaves
    ]


class _Call:
    """One call of a custom function: what its flat functions share."""

    def __init__(self, custom: Any, static: list[Any], args: list[Any]):
        self.custom = custom
        self.static = static
        self.leaves, self.in_tree = tree_flatten(tuple(args))
        self.leaves = [x.__jax_array__() if hasattr(x, "__jax_array__") else x for x in self.leaves]
        self.out_tree: Any = None
        self.out_avals: list[Any] = []
        self.name = fun_name(custom.fun)
        if any(map(is_ref, self.leaves)):
            names = argument_names(custom.fun, custom._join(static, args))
            refuse_aliases(type(custom).__name__, names[-len(self.leaves) :], self.leaves)

    def take_leaves(self) -> list[Any]:
        """The arguments' leaves, which a call that lives on in a program must not keep alive."""
        leaves, self.leaves = self.leaves, []
        return leaves

    def fun(self, *leaves: Any) -> list[Any]:
        args = tree_unflatten(self.in_tree, _as_arrays(leaves))
        return self.result(self.custom.fun(*self.custom._join(self.static, list(args))))

    def result(self, out: Any) -> list[Any]:
        leaves, tree = flatten_result(out, self.name)
        for leaf in leaves:
            if is_ref(leaf):
                raise ValueError(
                    f"the function {self.name}, of custom derivatives, returned a mutable array "
                    f"reference of type {leaf.aval}; return what it holds, ref[...]."
                )
        avals = [get_aval(x) for x in leaves]
        if self.out_tree is not None:
            self.check_result(tree, avals)
        self.out_tree, self.out_avals = tree, avals
        return leaves

    def check_result(self, tree: Any, avals: list[Any]) -> None:
        """Raise if a rule's result is of another structure or of other types than the function's.

        Args:
          tree: structure of the rule's result.
          avals: types of its leaves.
        """
        if tree != self.out_tree:
            which, what = "of the same container/pytree structure", "container/pytree structure"
        elif any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(avals, self.out_avals)):
            which, what = "with leaves of the same shape/dtype", "shapes/dtypes of"
        else:
            return
        kind, rule, second = self.custom.primal_rule()
        decorated = f"{type(self.custom).__name__}-decorated function {self.name}"
        if second:
            like = f"(equal to the output of the {decorated}) and {second}"
        else:
            like = f"(equal in value to the output of the {decorated}, and in particular {which})"
        raise TypeError(
            f"Custom {kind} {fun_name(rule)} for function {self.name} must produce a pair (list "
            f"or tuple of length two) where the first element represents the primal output {like},"
            f" but instead the {kind.removeprefix('VJP ')} output's first element had {what}:\n"
            f"    {_types_text(tree_unflatten(tree, avals))}\n"
            f"while the {decorated} had output {what}:\n"
            f"    {_types_text(tree_unflatten(self.out_tree, self.out_avals))}."
        )


class custom_jvp(_CustomFunction):
    """A function whose forward derivative is given by a rule.

    The rule serves reverse mode too, by linearization and transposition.

    Args:
      nondiff_argnums: positions of arguments the rule takes as they are, first; they are not
        differentiated and need not be arrays.
      nondiff_argnames: the same, by name.

        >>> @amdjax.custom_jvp
        ... def f(x, y):
        ...     return x * y
        >>> @f.defjvp
        ... def f_jvp(primals, tangents):
        ...     (x, y), (dx, dy) = primals, tangents
        ...     return f(x, y), y * dx + x * dy
        >>> print(amdjax.grad(f)(2.0, 3.0))
        3.0
    """

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: Any = (), nondiff_argnames: Any = ()
    ):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule.

        Args:
          jvp: `jvp(*nondiff_args, primals, tangents) -> (result, tangent of result)`.
          symbolic_zeros: whether tangents known to be zero reach the rule as `SymbolicZero`.

        Returns:
          `jvp`, so that this can be used as a decorator.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set the rule by one function for each argument.

        Args:
          *jvps: `jvp(tangent, result, *args) -> tangent of the result`; None for zero.
        """
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals: Any, tangents: Any) -> Any:
            out = self(*primals)
            found = [f(t, out, *primals) for f, t in zip(jvps, tangents) if f is not None]
            if not found:
                return out, tree_map(lambda x: zeros_like_aval(get_aval(x).to_tangent()), out)
            total = found[0]
            for more in found[1:]:
                total = tree_map(add_tangents, total, more)
            return out, total

        self.defjvp(jvp)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise AttributeError(
                f"No JVP defined for custom_jvp function {fun_name(self.fun)} using defjvp."
            )
        try:
            call = _JVPCall(self, *self._split(args, kwargs))
            params = {"name": call.name, "symbolic_zeros": self.symbolic_zeros}
            outs = custom_jvp_call_p.bind_functions(call.fun, call.jvp, call.take_leaves(), params)
            return tree_unflatten(call.out_tree, outs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    def primal_rule(self) -> tuple[str, Any, str]:
        return "JVP rule", self.jvp, ""


class _JVPCall(_Call):
    def jvp(self, *leaves: Any) -> list[Any]:
        half = len(leaves) // 2
        leaves = tuple(_as_arrays(leaves))
        tangents = leaves[half:]
        if self.custom.symbolic_zeros:
            tangents = tuple(SymbolicZero(t.aval) if type(t) is Zero else t for t in tangents)
        primals = tree_unflatten(self.in_tree, leaves[:half])
        pair = self.custom.jvp(*self.static, primals, tree_unflatten(self.in_tree, tangents))
        rule = fun_name(self.custom.jvp)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"Custom JVP rule {rule} for function {self.name} must produce a pair (list or "
                "tuple of length two) representing primal and tangent outputs, but got "
                f"{pair}."
            )
        outs = self.result(pair[0])
        out_tangents, tree = tree_flatten(pair[1])
        if tree != self.out_tree:
            raise TypeError(
                f"Custom JVP rule {rule} for function {self.name} must produce primal and tangent "
                "outputs with equal container (pytree) structures, but got "
                f"{self.out_tree} and {tree} respectively."
            )
        return [*outs, *map(functools.partial(self.tangent, rule), outs, out_tangents)]

    def tangent(self, rule: str, out: Any, tangent: Any) -> Any:
        """A tangent the rule returned, checked against its primal."""
        wanted = get_aval(out).to_tangent()
        if type(tangent) is SymbolicZero:
            return Zero(wanted)
        if type(tangent) is Zero:
            return tangent
        aval: Any = get_aval(tangent)
        if (aval.shape, aval.dtype) != (wanted.shape, wanted.dtype):
            raise TypeError(
                "Custom JVP rule must produce primal and tangent outputs with corresponding shapes "
                f"and dtypes. Expected {_types_text(wanted)} (tangent type of "
                f"{_types_text(get_aval(out))}) but got {_types_text(aval)}.\n"
                f"The rule is {rule}, of {self.name}."
            )
        return Zero(wanted) if wanted.dtype == float0 else tangent


class CustomVJPPrimal:
    """What `fwd` of a rule with `symbolic_zeros=True` receives for each argument.

    Args:
      value: the argument.
      perturbed: whether it is being differentiated.
    """

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool):
        self.value = value
        self.perturbed = perturbed


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The values in a pytree of `CustomVJPPrimal`s.

    Args:
      tree: what `fwd` of a rule with `symbolic_zeros=True` is given.

    Returns:
      A pytree of the same structure with each `value`.

    Raises:
      TypeError: a leaf is no `CustomVJPPrimal`.

        >>> custom_vjp_primal_tree_values([CustomVJPPrimal(1.0, True)])
        [1.0]
    """

    def value(leaf: Any) -> Any:
        if type(leaf) is not CustomVJPPrimal:
            raise TypeError(f"unexpected leaf type {type(leaf)}, expected CustomVJPPrimal")
        return leaf.value

    return tree_map(value, tree)


class custom_vjp(_CustomFunction):
    """A function whose reverse derivative is given by a pair of rules.

    Args:
      nondiff_argnums: positions of arguments that are not differentiated and need not be arrays;
        `fwd` takes them in place, `bwd` takes them first.
      nondiff_argnames: the same, by name.

        >>> @amdjax.custom_vjp
        ... def clip_gradient(x):
        ...     return x
        >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, g: (g * 0.5,))
        >>> print(amdjax.grad(clip_gradient)(2.0))
        0.5
    """

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: Any = (), nondiff_argnames: Any = ()
    ):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False
        self.optimize_remat = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rules.

        Args:
          fwd: takes the arguments, returns the result and residuals.
          bwd: `bwd(*nondiff_args, residuals, cotangent)` returns a tuple with a cotangent for
            each differentiated argument; None stands for zero.
          symbolic_zeros: whether `fwd` receives `CustomVJPPrimal`s, and `bwd` a `SymbolicZero`
            for each cotangent known to be zero.
          optimize_remat: accepted; dead residuals are always removed.
        """
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros = symbolic_zeros
        self.optimize_remat = optimize_remat

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise AttributeError(
                f"No VJP defined for custom_vjp function {fun_name(self.fun)} using defvjp."
            )
        static, others = self._split(args, kwargs)
        for leaf in tree_flatten(static)[0]:
            if isinstance(leaf, Tracer):
                raise UnexpectedTracerError(
                    f"The custom_vjp function {fun_name(self.fun)} got a traced array in a "
                    "position listed in nondiff_argnums. Arrays must be ordinary arguments, for "
                    "which the backward rule may return None."
                )
        call = _VJPCall(self, static, others)
        params = {"name": call.name, "symbolic_zeros": self.symbolic_zeros}
        outs = custom_vjp_call_p.bind_functions(
            call.fun, call.fwd, call.bwd, call.take_leaves(), params
        )
        return tree_unflatten(call.out_tree, outs)

    def primal_rule(self) -> tuple[str, Any, str]:
        second = (
            "the second element represents residuals (i.e. values stored from the forward pass "
            "for use on the backward pass)"
        )
        return "VJP fwd rule", self.fwd, second


class _VJPCall(_Call):
    def fwd(self, nonzeros: Sequence[bool], *leaves: Any) -> tuple[list[Any], list[Any]]:
        leaves = tuple(_as_arrays(leaves))
        given: Any = leaves
        if self.custom.symbolic_zeros:
            given = [CustomVJPPrimal(x, nz) for x, nz in zip(leaves, nonzeros)]
        args = list(tree_unflatten(self.in_tree, given))
        pair = self.custom.fwd(*self.custom._join(self.static, args))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"Custom VJP fwd rule {fun_name(self.custom.fwd)} for function {self.name} must "
                "produce a pair (list or tuple of length two): the result and residuals, but got "
                f"{pair}."
            )
        self.in_avals = [get_aval(x) for x in leaves]
        residuals, self.residual_tree = tree_flatten(pair[1])
        # Python values stay as they are, so that `bwd` may use them as shapes or flags.
        self.static_residuals = [
            None if hasattr(r, "aval") or hasattr(r, "dtype") else (r,) for r in residuals
        ]
        given = {identity_of_ref(x) for x in leaves if is_ref(x)}
        for r in residuals:
            if is_ref(r) and identity_of_ref(r) not in given:
                raise ValueError(
                    f"the custom_vjp fwd function {fun_name(self.custom.fwd)} returned a mutable "
                    f"array reference of type {r.aval} that is none of its arguments."
                )
        outs = self.result(pair[0])
        return [r for r, s in zip(residuals, self.static_residuals) if s is None], outs

    def bwd(self, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        rest = iter(residuals)
        everything = [next(rest) if s is None else s[0] for s in self.static_residuals]
        if self.custom.symbolic_zeros:
            cts = [SymbolicZero(ct.aval) if type(ct) is Zero else ct for ct in cts]
        else:
            cts = [instantiate_zeros(ct) for ct in cts]
        cts = _as_arrays(cts)
        found = self.custom.bwd(
            *self.static,
            tree_unflatten(self.residual_tree, everything),
            tree_unflatten(self.out_tree, cts),
        )
        return self.cotangents(found)

    def cotangents(self, found: Any) -> list[Any]:
        """A cotangent for each leaf of the arguments, from what the rule returned."""
        rule = fun_name(self.custom.bwd)
        if isinstance(found, list):
            found = tuple(found)
        dummy = tree_unflatten(self.in_tree, range(len(self.in_avals)))
        if not isinstance(found, tuple) or len(found) != len(dummy):
            got = f"a tuple of length {len(found)}" if isinstance(found, tuple) else f"{found!r}"
            raise TypeError(
                f"Custom VJP bwd rule {rule} for function {self.name} must produce a tuple with a "
                f"cotangent for each of its {len(dummy)} differentiated arguments, but got {got}."
            )
        cts: list[Any] = [None] * len(self.in_avals)
        self.fill(cts, dummy, found, rule)
        return [self.cotangent(i, ct, rule) for i, ct in enumerate(cts)]

    def fill(self, cts: list[Any], where: Any, found: Any, rule: str) -> None:
        """Put cotangents where their arguments are.

        None stands for zeros, and an array for itself, at all leaves of a subtree.
        """
        leaves, tree = tree_flatten(where, is_leaf=lambda x: x is not where)
        if found is None:
            return
        if len(leaves) == 1 and leaves[0] is where:
            cts[where] = found
            return
        others, other_tree = tree_flatten(found, is_leaf=lambda x: x is not found)
        if tree != other_tree:
            if len(others) == 1 and others[0] is found:
                for w in tree_flatten(where)[0]:
                    cts[w] = found
                return
            raise TypeError(
                f"Custom VJP bwd rule {rule} for function {self.name} must produce cotangents of "
                f"the structure of the arguments, {tree}, but got {other_tree}."
            )
        for w, f in zip(leaves, others):
            self.fill(cts, w, f, rule)

    def cotangent(self, i: int, ct: Any, rule: str) -> Any:
        """The cotangent of the `i`-th leaf of the arguments, checked."""
        aval = held(self.in_avals[i])
        wanted = aval.to_tangent()
        if type(ct) is SymbolicZero and ct.shape != wanted.shape:
            raise ValueError(self.mismatch(i, ct.aval, rule) + _JUST_NONE)
        if ct is None or type(ct) in (Zero, SymbolicZero) or wanted.dtype == float0:
            return Zero(wanted)
        if not is_valid_value(ct):
            raise TypeError(
                f"Custom VJP bwd rule {rule} for function {self.name} must produce arrays: {ct!r}, "
                f"for an argument of type {aval.str_short()}, is not a valid JAX type."
            )
        got: Any = get_aval(ct)
        if got.dtype == float0:
            return Zero(wanted)
        if got.shape != wanted.shape and not config.disable_bwd_checks:
            raise ValueError(self.mismatch(i, got, rule))
        return ct

    def mismatch(self, i: int, got: Any, rule: str) -> str:
        """What is said of a cotangent of another type than its argument's."""
        dummy = tree_unflatten(self.in_tree, range(len(self.in_avals)))
        path = keystr(tree_flatten_with_path(dummy)[0][i][0])
        wanted = self.in_avals[i].to_tangent()
        return (
            f"Custom VJP bwd rule {rule} for function {self.name} must produce cotangents of the "
            f"types of the arguments, but at output{path} the bwd rule produced an output of type "
            f"{_types_text(got)} corresponding to an input of type {_types_text(wanted)}."
        )


_JUST_NONE = " Consider just returning a None here instead of a zero."
