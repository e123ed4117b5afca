"""Libraries with JAX's interface as what programs run on."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .program import Program, Type, run


class Traced:
    """`Traced("amdjax")` or `Traced("jax")`: programs run on that library."""

    def __init__(self, name: str):
        self.module = importlib.import_module(name)
        self.np = importlib.import_module(f"{name}.numpy")
        self.lax = importlib.import_module(f"{name}.lax")
        self.nn = importlib.import_module(f"{name}.nn")

    def finish(self, x: Any, t: Type) -> Any:
        """The result of a step, which must have the type that the program gives it."""
        if x.shape != t.shape or x.dtype != t.dtype:
            raise AssertionError(f"{x.dtype}{list(x.shape)} in place of {t}")
        return x

    def call(self, program: Program, *xs: Any) -> list[Any]:
        return run(program, self, xs)

    def _function(self, program: Program) -> Any:
        return lambda *xs: self.call(program, *xs)

    # Elements and arrays

    def convert(self, x: Any, old: str, new: str) -> Any:
        return self.lax.convert_element_type(x, np.dtype(new))

    def constant(self, value: float, like: Any) -> Any:
        return self.np.asarray(value, like.dtype)

    def erf(self, x: Any) -> Any:
        return self.lax.erf(x)

    def logistic(self, x: Any) -> Any:
        return self.lax.logistic(x)

    def rsqrt(self, x: Any) -> Any:
        return self.lax.rsqrt(x)

    def population_count(self, x: Any) -> Any:
        return self.lax.population_count(x)

    def pad(self, x: Any, config: Sequence[tuple[int, int, int]]) -> Any:
        return self.lax.pad(x, self.np.zeros((), x.dtype), config)

    def sort(self, x: Any, axis: int) -> Any:
        return self.lax.sort(x, dimension=axis)

    def top_k(self, x: Any, k: int) -> Any:
        return self.lax.top_k(x, k)

    def cumulative(self, x: Any, name: str, axis: int, reverse: bool) -> Any:
        return getattr(self.lax, name)(x, axis=axis, reverse=reverse)

    def dynamic_slice(self, x: Any, start: Any, axis: int, size: int) -> Any:
        return self.lax.dynamic_slice_in_dim(x, start, size, axis)

    def dynamic_update_slice(self, x: Any, update: Any, start: Any, axis: int) -> Any:
        return self.lax.dynamic_update_slice_in_dim(x, update, start, axis)

    def scatter(self, x: Any, indices: Any, updates: Any, how: str) -> Any:
        return getattr(x.at[indices], how)(updates, mode="drop")

    def take(self, x: Any, indices: Any, axis: int, mode: str) -> Any:
        return self.np.take(x, indices, axis=axis, mode=mode)

    def scatter_set(self, x: Any, indices: Any, rows: Any) -> Any:
        return x.at[indices].set(rows, mode="drop", unique_indices=True)

    def take_or_fill(self, x: Any, indices: Any) -> Any:
        return x.at[indices].get(mode="fill", fill_value=1)

    def associative_scan(self, combine: Any, xs: Any, axis: int, reverse: bool) -> Any:
        return self.lax.associative_scan(combine, xs, axis=axis, reverse=reverse)

    def sort_together(self, xs: Sequence[Any], axis: int) -> Any:
        return self.lax.sort(xs, dimension=axis, is_stable=True, num_keys=1)

    def through_ref(self, x: Any, row: Any, at: Any, add: bool) -> Any:
        ref = self.module.new_ref(x)
        ref[at] = ref[at] + row if add else row
        read = ref[x.shape[0] // 2]
        return self.module.freeze(ref), read

    def window(self, x: Any, how: str, sizes: Any, strides: Any, pads: Any) -> Any:
        is_float = self.np.issubdtype(x.dtype, self.np.floating)
        info = None if is_float else np.iinfo(x.dtype)
        start = {
            "add": 0,
            "max": -np.inf if is_float else info.min,
            "min": np.inf if is_float else info.max,
        }[how]
        combine = getattr(self.lax, how)
        start = np.asarray(start, x.dtype)
        return self.lax.reduce_window(x, start, combine, sizes, strides, pads)

    def conv(
        self, x: Any, w: Any, strides: Any, pads: Any, dilation: Any, groups: int, apart: Any
    ) -> Any:
        return self.lax.conv_general_dilated(
            x, w, strides, pads, apart, dilation, feature_group_count=groups
        )

    # Control flow and transforms

    def cond(self, choice: Any, programs: Sequence[Program], *xs: Any) -> Any:
        functions = [self._function(p) for p in programs]
        if len(functions) == 2:
            return self.lax.cond(choice != 0, functions[1], functions[0], *xs)
        return self.lax.switch(choice.astype(np.int32), functions, *xs)

    def while_loop(self, program: Program, limit: Any, *carry: Any) -> Any:
        body = lambda c: (c[0] + 1, *self.call(program, *c))
        start = (self.np.zeros((), np.int32), *carry)
        return self.lax.while_loop(lambda c: c[0] < limit, body, start)[1:]

    def fori_loop(self, program: Program, limit: int, *carry: Any) -> Any:
        # With 64-bit types the counter is wide, whatever the bounds are.
        body = lambda i, c: tuple(self.call(program, self.np.asarray(i, np.int32), *c))
        bounds = np.int32(0), np.int32(limit)
        return self.lax.fori_loop(*bounds, body, carry)

    def scan(
        self, program: Program, carried: int, reverse: bool, unroll: int | bool, *xs: Any
    ) -> Any:
        def body(carry: Any, rows: Any) -> Any:
            made = self.call(program, *carry, *rows)
            return tuple(made[:carried]), tuple(made[carried:])

        carry, ys = self.lax.scan(
            body, tuple(xs[:carried]), tuple(xs[carried:]), reverse=reverse, unroll=unroll
        )
        return [*carry, *ys]

    def vmap(self, program: Program, in_axes: Sequence[int | None], out: int, *xs: Any) -> Any:
        out_axes = [min(out, t.rank) for t in program.output_types]
        return self.module.vmap(self._function(program), tuple(in_axes), out_axes)(*xs)

    def jit(self, program: Program, *xs: Any) -> Any:
        return self.module.jit(self._function(program))(*xs)

    def checkpoint(self, program: Program, *xs: Any) -> Any:
        return self.module.checkpoint(self._function(program))(*xs)

    def checkpoint_dots(self, program: Program, *xs: Any) -> Any:
        policy = self.module.checkpoint_policies.dots_saveable
        return self.module.checkpoint(self._function(program), policy=policy)(*xs)

    def checkpoint_all(self, program: Program, *xs: Any) -> Any:
        policy = self.module.checkpoint_policies.everything_saveable
        return self.module.checkpoint(self._function(program), policy=policy)(*xs)

    def checkpoint_none(self, program: Program, *xs: Any) -> Any:
        policy = self.module.checkpoint_policies.nothing_saveable
        return self.module.checkpoint(self._function(program), policy=policy)(*xs)

    def closed_over_by_scan(self, program: Program, *xs: Any) -> Any:
        step = lambda carry, _: (carry, tuple(self.call(program, *xs)))
        return [y[-1] for y in self.lax.scan(step, (), None, length=2)[1]]

    def closed_over_by_cond(self, program: Program, *xs: Any) -> Any:
        run_it = lambda: tuple(self.call(program, *xs))
        other = lambda: tuple(self.np.zeros(t.shape, t.dtype) for t in program.output_types)
        choice = self.np.isfinite(self.np.sum(self.np.zeros_like(xs[0])))
        return self.lax.cond(choice, run_it, other)

    def custom_vmap(self, program: Program, *xs: Any) -> Any:
        function = lambda *xs: tuple(self.call(program, *xs))
        f = self.module.custom_batching.custom_vmap(function)

        def rule(size: int, batched: Any, *xs: Any) -> Any:
            axes = [0 if b else None for b in batched]
            made = self.module.vmap(function, axes, axis_size=size)(*xs)
            return made, (True,) * len(made)

        f.def_vmap(rule)
        return f(*xs)

    def donate(self, program: Program, *xs: Any) -> Any:
        return self.module.jit(self._function(program), donate_argnums=0)(
            self.np.array(xs[0]), *xs[1:]
        )

    def custom_jvp(self, program: Program, *xs: Any) -> Any:
        f = self.module.custom_jvp(self._function(program))
        f.defjvp(lambda xs, ts: self.module.jvp(self._function(program), xs, ts))
        return f(*xs)

    def custom_vjp(self, program: Program, *xs: Any) -> Any:
        f = self.module.custom_vjp(self._function(program))
        f.defvjp(lambda *xs: self.module.vjp(self._function(program), *xs), lambda vjp, g: vjp(g))
        return f(*xs)

    def jvp(self, program: Program, x: Any, tangent: Any, *rest: Any) -> Any:
        f = lambda x: self.call(program, x, *rest)[0]
        return list(self.module.jvp(f, (x,), (tangent,)))

    def grad(self, program: Program, x: Any, *rest: Any) -> Any:
        f = lambda x: self.call(program, x, *rest)[0].astype(np.float32).sum()
        return [self.module.grad(f)(x)]

    def hessian(self, program: Program, x: Any, *rest: Any) -> Any:
        f = lambda x: self.call(program, x, *rest)[0].sum()
        return self.module.jacfwd(self.module.jacrev(f))(x)

    def collective(self, program: Program, how: str, *xs: Any) -> Any:
        """The body of each row, and of its first result what all rows make together."""
        n = xs[0].shape[0]

        def row(*xs: Any) -> Any:
            y = self.call(program, *xs)[0]
            if how == "ppermute":
                return self.lax.ppermute(y, "rows", [(i, (i + 1) % n) for i in range(n)])
            return getattr(self.lax, how)(y, "rows")

        return self.module.vmap(row, axis_name="rows")(*xs)

    def jacobian(self, program: Program, forward: bool, x: Any, *rest: Any) -> Any:
        transform = self.module.jacfwd if forward else self.module.jacrev
        return transform(lambda x: self.call(program, x, *rest)[0])(x)

    def map_rows(self, program: Program, batch: int | None, *xs: Any) -> Any:
        return self.lax.map(lambda rows: self.call(program, *rows), xs, batch_size=batch)
