"""The arguments of a compiled function: which are static, which donated, and their leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from amdjax.core import transfers
from amdjax.core.array import ConcreteArray, PlacedArray, asarray_concrete
from amdjax.core.aval import abstract_types, get_aval, is_array_like
from amdjax.core.backend import get_backend
from amdjax.core.flattening import tree_flatten, tree_unflatten
from amdjax.core.ref import Ref
from amdjax.core.trace import Tracer, eval_trace
from amdjax.core.treedef import PyTreeDef
from amdjax.transforms.flat import argument_names, fun_name, positions_of, signature

_OWN = frozenset((ConcreteArray, PlacedArray, Ref))


class Parameters:
    """What `jit` was told of a function's parameters.

    Args:
      fun: the function.
      static_argnums: positions of arguments that are compile-time constants.
      static_argnames: names of such parameters.
      donate_argnums: positions of arguments whose memory the results may take over.
      donate_argnames: names of such parameters.

    Attributes:
      kind: all but the function, hashable.
    """

    def __init__(
        self, fun: Callable[..., Any], static_argnums: Any, static_argnames: Any,
        donate_argnums: Any, donate_argnames: Any,
    ):  # fmt: skip
        self.fun, self.name = fun, fun_name(fun)
        self._static, self._static_names = _resolve(fun, static_argnums, static_argnames, "static")
        self._donated, self._donated_names = _resolve(
            fun, donate_argnums, donate_argnames, "donate"
        )
        pairs: list[tuple[str, Any]] = [
            ("argnums", {*self._static} & {*self._donated}),
            ("argnames", self._static_names & self._donated_names),
        ]
        for what, both in reversed(pairs) if donate_argnums is None else pairs:
            if both:
                raise ValueError(
                    f"static_{what} and donate_{what} cannot intersect: {sorted(both)} are in both"
                )
        self.kind = self._static, self._static_names, self._donated, self._donated_names
        self._plain = not (self._static or self._static_names)
        self._no_donation = not (self._donated or self._donated_names)

    def refuse_static(self, lengths: Iterable[str]) -> None:
        """Raise ValueError if a parameter that `lengths` names is static."""
        for name in lengths:
            if name in self._static_names:
                raise ValueError(
                    f"jit: lengths names {name!r}, which is static: sizes before padding are arrays"
                )

    def leaves_of(self, args: Any, kwargs: Any) -> tuple[list[Any], PyTreeDef, Any]:
        """As `split`, shorter for calls without keywords of functions without static arguments."""
        if kwargs or not self._plain:
            return self.split(args, kwargs)
        return *tree_flatten(args), None

    def split(self, args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], PyTreeDef, Any]:
        """Leaves and structure of the traced arguments, and the static ones as a hashable."""
        n = len(args)
        positions = self._fixed(n)
        static_args = tuple((i, args[i]) for i in sorted(positions))
        static_kwargs = tuple((k, kwargs[k]) for k in sorted(kwargs) if k in self._static_names)
        dynamic = tuple(a for i, a in enumerate(args) if i not in positions)
        dynamic_kwargs = {k: v for k, v in kwargs.items() if k not in self._static_names}
        # Equal values of different types, as 2 and 2.0, make different programs.
        types = tuple(type(v) for _, v in (*static_args, *static_kwargs))
        static = (n, static_args, static_kwargs, types)
        try:
            hash(static)
        except TypeError:
            self._reject_static(static_args, static_kwargs)
        leaves, tree = tree_flatten((dynamic, dynamic_kwargs))
        return leaves, tree, static

    def _reject_static(self, *groups: Any) -> None:
        for name, value in (pair for group in groups for pair in group):
            try:
                hash(value)
            except TypeError:
                raise ValueError(
                    "Non-hashable static arguments are not supported: they are compared between "
                    f"calls. jit of {self.name} got the static argument {name!r} of type "
                    f"{type(value).__name__}; use a tuple instead of a list, or pass it as a "
                    "traced argument."
                ) from None

    def restore(
        self, leaves: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Arguments of the user's function from their leaves."""
        if static is None:
            return tree_unflatten(tree, leaves), {}
        n, static_args, static_kwargs, _ = static
        dynamic, kwargs = tree_unflatten(tree, leaves)
        fixed, rest = dict(static_args), iter(dynamic)
        args = tuple(fixed[i] if i in fixed else next(rest) for i in range(n))
        return args, {**kwargs, **dict(static_kwargs)}

    def leaf_names(self, avals: Sequence[Any], tree: PyTreeDef, static: Any) -> tuple[str, ...]:
        """What the function calls the leaves of its traced arguments.

        Containers may look at what they are made of, so they are made of types, as when tracing.
        """
        args, kwargs = self.restore(avals[: tree.num_leaves], tree, static)
        if static is not None:
            fixed = {i for i, _ in static[1]}
            args = tuple(None if i in fixed else x for i, x in enumerate(args))
            kwargs = {**kwargs, **dict.fromkeys((name for name, _ in static[2]), None)}
        return argument_names(self.fun, args, kwargs)

    def as_arrays(self, leaves: Sequence[Any], args: Any, kwargs: dict[str, Any]) -> list[Any]:
        """Leaves as arrays and references of ours; NumPy arrays are read where they are.

        Raises:
          TypeError: a leaf is no array.
        """
        self.check_leaves(leaves, args, kwargs)
        if not abstract_types.isdisjoint(map(type, leaves)):
            raise self._refusal(leaves, args, kwargs)
        try:
            return [x if type(x) in _OWN else self._array(x) for x in leaves]
        except OverflowError as e:
            raise self._refusal(leaves, args, kwargs, e) from None

    def check_leaves(self, leaves: Sequence[Any], args: Any, kwargs: dict[str, Any]) -> None:
        """Raise a TypeError that names the argument of which a leaf is no array."""
        if not all(map(is_array_like, leaves)):
            raise self._refusal(leaves, args, kwargs)

    def _refusal(
        self,
        leaves: Sequence[Any],
        args: Any,
        kwargs: dict[str, Any],
        error: OverflowError | None = None,
    ) -> Exception:
        """The error of a leaf that is no array with a value, with the name of its argument."""
        fixed = self._fixed(len(args))
        traced = tuple(None if i in fixed else x for i, x in enumerate(args))
        by_name = {k: None if k in self._static_names else x for k, x in kwargs.items()}
        named = list(zip(argument_names(self.fun, traced, by_name), leaves))
        for name, x in named:
            if not is_array_like(x):
                return TypeError(
                    f"Error interpreting argument to {self.name} as an abstract array. The "
                    f"problematic value is of type {type(x)} and was passed to the function at "
                    f"path {name}: {x!r} is not a valid JAX type. Arguments are arrays, scalars, "
                    "or pytrees of them; mark others with static_argnums or static_argnames."
                )
        for name, x in named:
            if type(x) in abstract_types:
                return TypeError(
                    f"Argument '{name}' of shape {_described(x)} of type {type(x)} is not a valid "
                    f"JAX type. A {type(x).__name__} does not have a value: {self.name} can be "
                    "traced or lowered with it, not called."
                )
        assert error is not None
        for name, x in named:
            try:
                get_aval(x)
            except OverflowError:
                return OverflowError(
                    f"An overflow was encountered in a call of {self.name}, in the argument whose "
                    f"argument path is {name}. {error}"
                )
        return error

    def _array(self, x: Any) -> ConcreteArray:
        if isinstance(x, Tracer):
            return eval_trace.concrete(x)  # a leaked one: raises
        if isinstance(x, np.ndarray) and x.flags.c_contiguous:
            aval = get_aval(x)
            if aval.dtype == x.dtype:
                what = f"an argument of {self.name}: {aval.str_short()}"
                transfers.check("host_to_device", what)
                return ConcreteArray(aval, get_backend().borrow(x))
        return asarray_concrete(x)

    def _fixed(self, n: int) -> set[int]:
        """The static ones among `n` positional arguments."""
        return {i % n if i < 0 else i for i in self._static if -n <= i < n}

    def donations(self, tree: PyTreeDef, static: Any) -> tuple[bool, ...]:
        """Which leaves of the traced arguments are donated."""
        if self._no_donation:
            return (False,) * tree.num_leaves
        marks = tree_unflatten(tree, [False] * tree.num_leaves)
        args, kwargs = (marks, {}) if static is None else marks
        donated_args = self._donated_positions(len(args) if static is None else static[0], static)
        flags: list[bool] = []
        for i, a in enumerate(args):
            flags += [i in donated_args] * len(tree_flatten(a)[0])
        for name in sorted(kwargs):
            flags += [name in self._donated_names] * len(tree_flatten(kwargs[name])[0])
        return tuple(flags)

    def _donated_positions(self, n: int, static: Any) -> set[int]:
        """Donated positions among the traced positional arguments."""
        positions = {i % n if i < 0 else i for i in self._donated}
        if static is None:
            return positions
        fixed = {i for i, _ in static[1]}
        kept = [i for i in range(n) if i not in fixed]
        return {k for k, i in enumerate(kept) if i in positions}


def _described(x: Any) -> Any:
    """The type of an abstract value, of which dimensions may be texts."""
    return x if str in map(type, getattr(x, "shape", ())) else get_aval(x)


def _resolve(fun: Any, nums: Any, names: Any, what: str) -> tuple[tuple[int, ...], frozenset[str]]:
    """Positions and names, each found from the other where one of them is not given."""
    infer_nums, infer_names = nums is None, names is None
    given_nums = () if nums is None else positions_of(nums)
    if not isinstance(names, (str, Iterable, type(None))):
        raise TypeError(f"jit: {what}_argnames must be strings, got {names!r}")
    given_names = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    for n in given_nums:
        if not isinstance(n, (int, np.integer)):
            raise TypeError(f"jit: {what}_argnums must be ints, got {n!r}")
    for s in given_names:
        if not isinstance(s, str):
            raise TypeError(f"jit: {what}_argnames must be strings, got {s!r}")
    if not (given_nums or given_names):
        return given_nums, frozenset(given_names)
    sig = signature(fun)
    if sig is None and given_names and what == "donate":
        raise ValueError(
            f"Getting the signature of function {fun!r} failed. Pass donate_argnums instead of "
            "donate_argnames."
        )
    if sig is None:
        return given_nums, frozenset(given_names)
    parameters = list(sig.parameters.values())
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for n in given_nums:
        if not open_ended and not -len(positional) <= n < len(positional):
            raise ValueError(
                f"jit: {what}_argnums={n} is out of range for {fun_name(fun)}, which takes "
                f"{len(positional)} "
                f"positional arguments."
            )
    by_name = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    for s in given_names:
        if s not in by_name and (s in sig.parameters or not keywords):
            raise ValueError(
                f"jit: {what}_argnames names {s!r}, but {fun_name(fun)} takes by keyword "
                f"{sorted(by_name)}."
            )
    if infer_nums:
        given_nums = tuple(positional.index(s) for s in given_names if s in positional)
    elif infer_names:
        at = {positional[n] for n in given_nums if -len(positional) <= n < len(positional)}
        given_names = tuple(at & by_name)
    return tuple(sorted(given_nums)), frozenset(given_names)
