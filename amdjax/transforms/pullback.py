"""What `vjp` returns: the pull-back of cotangents, a pytree of the residuals it reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.dtypes import float0
from amdjax.core.jaxpr import Jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import PyTreeDef, register_pytree_node, tree_flatten, tree_unflatten
from amdjax.core.ref import is_ref
from amdjax.core.source_info import transformed
from amdjax.transforms.flat import FlatFunction, fun_name
from amdjax.transforms.linear import has_tangent, linearize_flat
from amdjax.transforms.reverse import backward_pass
from amdjax.transforms.zero import UndefinedPrimal, Zero, as_result


class _Mark:
    """Stands for a value that is not there; a pytree without leaves, equal to all of its class."""

    def __init_subclass__(cls) -> None:
        register_pytree_node(cls, lambda mark: ((), None), lambda *_: cls())

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class GradValue:
    """Asks `with_refs` for a cotangent, to be returned.

    >>> _, f_vjp = amdjax.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> f_vjp.with_refs(GradValue(), DontWant())(1.0)
    (Array(3., dtype=float32, weak_type=True), DidntWant())
    """


class DontWant:
    """Tells `with_refs` that a cotangent is not wanted, and need not be computed.

    >>> _, f_vjp = amdjax.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> f_vjp.with_refs(DontWant(), DontWant())(1.0)
    (DidntWant(), DidntWant())
    """


class NotNeeded(_Mark):
    """Stands for an argument whose value the pull-back does not read."""


class GradRef(_Mark):
    """Stands for a cotangent that was added to a reference."""


class DidntWant(_Mark):
    """Stands for a cotangent that was not wanted."""


class VJP:
    """The pull-back that `vjp` returns: called with a cotangent, it gives those of the arguments.

    Attributes:
      fun: the linear program, and what it is of.
      in_tree: structure of the tuple of arguments.
      out_tree: structure of the result.
      args_res: a list of the arguments, with `NotNeeded()` for each leaf that is not read. Leaves
        may be replaced, for instance by None while they are not needed.
      opaque_residuals: a list of the other values that are read.
    """

    def __init__(
        self, fun: Pullback, in_tree: PyTreeDef, out_tree: PyTreeDef, args_res: list[Any],
        opaque_residuals: list[Any],
    ):  # fmt: skip
        self.fun, self.in_tree, self.out_tree = fun, in_tree, out_tree
        self.args_res, self.opaque_residuals = args_res, opaque_residuals

    @property
    def jaxpr(self) -> Jaxpr:
        return self.fun.jaxpr

    @api_boundary
    def __call__(self, out_ct: Any, *extra_args: Any) -> Any:
        if extra_args:
            raise TypeError(
                f"The function returned by `jax.vjp` applied to {self.fun.name} was called with "
                f"{len(extra_args) + 1} arguments, but functions returned by `jax.vjp` must be "
                "called with a single argument corresponding to the single value returned by "
                f"{self.fun.name} (even if that returned value is a tuple or other container)."
            )
        found = self._cotangents(out_ct)
        return tree_unflatten(self.in_tree, [as_result(ct) for ct in found])

    def _cotangents(self, out_ct: Any, wanted: Sequence[bool] | None = None) -> Iterator[Any]:
        cts, tree = tree_flatten(out_ct)
        if tree != self.out_tree:
            raise ValueError(
                "unexpected tree structure of argument to vjp function: got "
                f"{tree}, but expected to match {self.out_tree}."
            )
        return self.fun(self._residuals(), cts, wanted)

    def _residuals(self) -> list[Any]:
        leaves: dict[int, Any] = {}
        start = 0
        for i, (arg, tree) in enumerate(zip(self.args_res, self.in_tree.children())):
            places = range(start, start + tree.num_leaves)
            start += tree.num_leaves
            if any(place in self.fun.read_arguments for place in places):
                leaves.update(zip(places, _leaves_of(i, arg, tree)))
        opaque = iter(self.opaque_residuals)
        return [
            next(opaque) if place is None else leaves[place] for place in self.fun.residual_places
        ]

    def with_refs(self, *refs: Any) -> Callable[[Any], Any]:
        """The pull-back that adds cotangents to references.

        Args:
          *refs: for each argument of the function a pytree like it. The cotangent of a leaf is
            added to what a reference in its place holds, is not computed for a `DontWant`, and
            else returned.

        Returns:
          A function of a cotangent, like the pull-back; it returns `GradRef()` in place of what was
          added, `DidntWant()` of what was not wanted.

        Example:
          >>> total = amdjax.new_ref(jnp.zeros(2))
          >>> _, f_vjp = amdjax.vjp(lambda x: (x * x).sum(), jnp.arange(2.0))
          >>> f_vjp.with_refs(total)(1.0)
          (GradRef(),)
          >>> total
          Ref([0., 2.], dtype=float32)
        """
        targets = self.in_tree.flatten_up_to(refs)

        def accumulate(cotangent: Any) -> Any:
            wanted = [type(target) is not DontWant for target in targets]
            cts = list(self._cotangents(cotangent, wanted))
            return tree_unflatten(self.in_tree, map(_deliver, targets, cts))

        return accumulate


register_pytree_node(
    VJP,
    lambda f: ((f.args_res, f.opaque_residuals), (f.fun, f.in_tree, f.out_tree)),
    lambda known, residuals: VJP(*known, *residuals),
)


def _deliver(target: Any, ct: Any) -> Any:
    """What `with_refs` returns of a cotangent."""
    if type(target) is DontWant:
        return DidntWant()
    if not is_ref(target):
        return as_result(ct)
    if type(ct) is not Zero:
        Primitive.by_name["addupdate"].bind(target, ct, indices=())
    return GradRef()


def _leaves_of(i: int, arg: Any, tree: PyTreeDef) -> list[Any]:
    try:
        return tree.flatten_up_to(arg)
    except (TypeError, ValueError) as e:
        raise ValueError(
            f"the pull-back reads args_res[{i}], which must have the structure of the argument, "
            f"{tree}, but is {arg!r}."
        ) from e


class Pullback:
    """A linear program run backwards.

    Args:
      flat: the function it was made of.
      jaxpr: from tangents to tangents, its constvars being the residuals.
      places: for each residual the number of the argument's leaf it is, None for others.
      nonzeros, nonzeros_out: which arguments and results have a tangent.
      in_avals, out_avals: types of all arguments and results.
    """

    def __init__(
        self, flat: FlatFunction, jaxpr: Jaxpr, places: list[int | None], nonzeros: list[bool],
        nonzeros_out: list[bool], in_avals: list[Any], out_avals: list[Any],
    ):  # fmt: skip
        self.name = fun_name(flat.fun)
        self.jaxpr, self.residual_places = jaxpr, places
        self.read_arguments = frozenset(places)
        self.nonzeros, self.nonzeros_out = nonzeros, nonzeros_out
        self.in_avals, self.out_avals = in_avals, out_avals

    def __call__(
        self, residuals: list[Any], cts: list[Any], wanted: Sequence[bool] | None
    ) -> Iterator[Any]:
        """A cotangent, which may be `Zero`, for each argument; of some it need not be right."""
        if wanted is not None:
            wanted = list(itertools.compress(wanted, self.nonzeros))
        for ct, aval in zip(cts, self.out_avals):
            _check_cotangent(ct, aval)
        given = [ct for ct, nz in zip(cts, self.nonzeros_out) if nz]
        linear_in = [UndefinedPrimal(v.aval) for v in self.jaxpr.invars]
        backward = transformed("transpose", backward_pass)
        found = iter(backward(self.jaxpr, residuals, linear_in, given, wanted))
        for nz, aval in zip(self.nonzeros, self.in_avals):
            yield next(found) if nz else Zero(aval.to_tangent())


def _check_cotangent(ct: Any, aval: Any) -> None:
    wanted, got = aval.to_tangent(), get_aval(ct)
    # The cotangent of an integer has no effect, whatever it is.
    if got.dtype != wanted.dtype != float0:
        name = "float0" if got.dtype == float0 else str(got.dtype)
        raise ValueError(
            "unexpected JAX type (e.g. shape/dtype) for argument to vjp function: got dtype "
            f"{name}, but expected {wanted.dtype} because the corresponding output has dtype "
            f"{aval.dtype}."
        )
    if got.shape != wanted.shape:
        raise ValueError(
            "unexpected JAX type (e.g. shape/dtype) for argument to vjp function: got shape "
            f"{got.shape}, but the corresponding output has shape {aval.shape}."
        )


def pull_back(flat: FlatFunction, leaves: Sequence[Any], in_tree: PyTreeDef) -> tuple[Any, VJP]:
    """The result of a function, and its pull-back.

    Args:
      flat: the function.
      leaves: its arguments.
      in_tree: their structure.
    """
    nonzeros = [has_tangent(x) for x in leaves]
    outs, nonzeros_out, linear = linearize_flat(
        transformed("jvp", flat), leaves, nonzeros, keep_arrays=True
    )
    number = {id(x): i for i, x in enumerate(leaves)}
    places = [number.get(id(x)) for x in linear.consts]
    read = frozenset(places)
    kept = [x if number[id(x)] in read else NotNeeded() for x in leaves]
    opaque = [x for x, place in zip(linear.consts, places) if place is None]
    fun = Pullback(
        flat, linear.jaxpr, places, nonzeros, nonzeros_out,
        [get_aval(x) for x in leaves], [get_aval(x) for x in outs],
    )  # fmt: skip
    args_res = list(tree_unflatten(in_tree, kept))
    return flat.unflatten(outs), VJP(fun, in_tree, flat.out_tree, args_res, opaque)
