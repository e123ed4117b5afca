"""Programs of symbolic shapes that are compiled ahead of time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.config import refuse_execution
from amdjax.core.dims import DimSize, ShapeEquations, SymbolicScope, scope_of
from amdjax.core.instantiate import instantiate, type_at
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, subjaxprs_of_value
from amdjax.core.lowering import Reduce, Shaped
from amdjax.core.pytree import tree_structure
from amdjax.jit.after_tracing import AfterTracing, MemoryStats, Saved, called_with, leaf_names
from amdjax.jit.symbolic import checked_sizes, given_sizes, shape_of
from amdjax.jit.variants import Variants, keep_recent


@dataclass(frozen=True)
class SymbolicCompiled(AfterTracing, Saved):
    """A compiled program of symbolic shapes; call it with arguments of any sizes that it serves.

    Args:
      traced: the traced program.
      compile: compiles a traced program of which all sizes are known.
      variants: makes programs for the sizes of calls, few of them; None where there is a target,
        for which each size is compiled.
      settings: the context in which it does.
      target_name: what it is compiled for: "cpu", or the name of a GPU.

    Example:
      >>> spec = amdjax.ShapeDtypeStruct(("b", 3), jnp.float32)
      >>> compiled = amdjax.jit(lambda x: x.sum(0)).lower(spec).compile()
      >>> compiled(np.ones((2, 3), np.float32)), compiled(np.ones((5, 3), np.float32))
      (Array([2., 2., 2.], dtype=float32), Array([5., 5., 5.], dtype=float32))
    """

    traced: Any
    compile: Callable[[Any], Any] = field(repr=False)
    variants: Variants | None = field(default=None, repr=False)
    settings: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, repr=False)
    target_name: str = "cpu"
    _compiled: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    # What serves arguments of types that were met lately.
    _served: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def scope(self) -> SymbolicScope:
        """What is known of the dimension variables."""
        scope = scope_of(self.traced.jaxpr.in_avals)
        assert scope is not None
        return scope

    def at(self, sizes: Mapping[str, int]) -> Any:
        """The compiled program of given sizes.

        Args:
          sizes: the size of each dimension variable.

        Returns:
          A `Compiled`.

        Raises:
          TypeError: sizes are no dictionary of integers.
          ValueError: a variable has no size, or there is none of a name; sizes violate a
            constraint, or the function has to be traced for them alone, and is not there.
        """
        sizes = given_sizes(sizes, self.scope, self.traced.jaxpr.in_avals)
        key = tuple(sorted(sizes.items()))
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self.compile(self.traced_at(sizes))
        return found

    def traced_at(self, sizes: Mapping[str, int]) -> Any:
        """The traced program of given sizes; raises as `at` does."""
        traced = self.traced
        if not self.scope.is_apart(sizes):
            closed = instantiate(traced.jaxpr, sizes)
            return dataclasses.replace(traced, jaxpr=closed, again=None)
        told = ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items()))
        if traced.again is None:
            raise ValueError(
                f"{traced.fun_name} was traced for sizes that differ from each other and from "
                f"those in the program, which {told} do not: trace and export it for these too"
            )
        closed, out_tree = traced.again([type_at(a, sizes) for a in traced.jaxpr.in_avals])
        return dataclasses.replace(traced, jaxpr=closed, out_tree=out_tree, again=None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse_execution(self.traced.fun_name)
        if len(args) == self._flat and not kwargs and {*map(type, args)} == {ConcreteArray}:
            leaves: Sequence[Any] = args  # the usual call needs no trees
        else:
            leaves = called_with(self.traced, args, kwargs)
        types = tuple([x.aval for x in leaves])
        found = self._served.get(types)
        if found is None:
            sizes = self.sizes(leaves)
            if self.variants is None or self.scope.is_apart(sizes):
                return self.at(sizes)(*args, **kwargs)
            with self.settings():
                found = self.variants.instance(sizes)
            keep_recent(self._served, types, found)
        run, variant = found
        if variant is not None:
            variant.uses += 1
        return self.traced.out_tree.unflatten(run(leaves))

    @cached_property
    def _flat(self) -> int:
        """How many arguments there are if each is a leaf, and none has a name; else -1."""
        count = len(self.traced.jaxpr.in_avals)
        return count if self.traced.in_tree == tree_structure(((0,) * count, {})) else -1

    def sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The sizes that arguments give the variables.

        Args:
          leaves: arrays or tracers.

        Raises:
          TypeError: a leaf has another dtype, or other axes.
          ValueError: sizes do not fit, or violate a constraint.
        """
        given, names = [x.aval for x in leaves], lambda: leaf_names(self.traced)
        wanted = self.traced.jaxpr.in_avals
        for i, (want, have) in enumerate(zip(wanted, given, strict=True)):
            if want.dtype != have.dtype or want.ndim != have.ndim:
                raise TypeError(
                    "Argument types differ from the types for which this computation was compiled: "
                    f"Argument '{names()[i]}' compiled with {want} and called with {have}"
                )
        return checked_sizes(self.traced.fun_name, self._equations, given, names, of_all=False)

    @cached_property
    def _equations(self) -> ShapeEquations:
        return ShapeEquations(list(map(shape_of, self.traced.jaxpr.in_avals)), self.scope)

    def as_text(self, stage: str = "jaxpr") -> str:
        """The program of symbolic shapes.

        Args:
          stage: "jaxpr", or "variants" for the programs that calls made: how many calls each
            served, the sizes that it is right for and preferred for, and the kernels that it
            launches, `name#number × programs`. Of programs of given sizes, `at(sizes).as_text`
            tells the other stages.

        Returns:
          Text for people to read.

        Raises:
          ValueError: it is another stage.

        Example:
          >>> spec = amdjax.ShapeDtypeStruct(("b", 8), jnp.float32)
          >>> compiled = amdjax.jit(lambda x: x * 2).lower(spec).compile()
          >>> results = [compiled(np.ones((b, 8), np.float32)) for b in (20, 50, 50)]
          >>> print(compiled.as_text("variants").splitlines()[0])
          variant 0: 3 calls of 2 sizes
        """
        if stage == "variants":
            if self.variants is None:
                return "compiled for each size"
            return str(self.variants) or "none yet: a call compiles what serves its sizes"
        if stage != "jaxpr":
            raise ValueError(
                f"as_text: stage {stage!r} depends on the sizes, see at(sizes).as_text({stage!r})"
            )
        return str(self.traced.jaxpr)

    def cost_analysis(self) -> dict[str, DimSize]:
        """Estimates of the work as formulas.

        Returns:
          `flops`, the operations on elements, loop bodies counted once, and `bytes accessed`, what
          arguments and results take: integers, or symbolic dimensions where they depend on sizes.

        Example:
          >>> spec = amdjax.ShapeDtypeStruct(("b", 8), jnp.float32)
          >>> compiled = amdjax.jit(lambda x: x @ x.T).lower(spec).compile()
          >>> compiled.cost_analysis()
          {'flops': 16*b^2, 'bytes accessed': 4*b^2 + 32*b}
        """
        memory = self.memory_analysis()
        accessed = memory.argument_size_in_bytes + memory.output_size_in_bytes
        return {"flops": _flops(self.traced.jaxpr), "bytes accessed": accessed}

    def memory_analysis(self) -> MemoryStats:
        """Bytes that the program takes, as formulas.

        Returns:
          Sizes of arguments, results and constants; of the variant that calls use most, what
          intermediates need at most at once, and results that take over donated arguments. Before
          the first call there is none: then intermediates have None. Of given sizes
          `at(sizes).memory_analysis()` tells how long the arena is.

        Example:
          >>> spec = amdjax.ShapeDtypeStruct(("b", 64), jnp.float32)
          >>> compiled = amdjax.jit(lambda x: x * 2, donate_argnums=0).lower(spec).compile()
          >>> _ = compiled(np.ones((100, 64), np.float32))
          >>> stats = compiled.memory_analysis()
          >>> stats.output_size_in_bytes, stats.alias_size_in_bytes, stats.temp_size_in_bytes
          (256*b, 256*b, 0)
        """
        closed = self.traced.jaxpr
        arguments = sum((a.nbytes for a in closed.in_avals), 0)
        results = sum((a.nbytes for a in closed.out_avals), 0)
        constants = sum(np.asarray(c).nbytes for c in closed.consts)
        variant = None if self.variants is None else self.variants.most_used()
        if variant is None:
            return MemoryStats(arguments, results, 0, None, constants)
        aliased = sum((closed.out_avals[i].nbytes for i in variant.program.aliases), 0)
        return MemoryStats(arguments, results, aliased, variant.workspace(self.scope), constants)


def _flops(program: Jaxpr | ClosedJaxpr) -> Any:
    """Operations on elements, by equations."""
    # late: loads where it is asked for
    from amdjax.schedule.equations import own_cost

    total: Any = 0
    for eqn in program.eqns:
        rule = eqn.primitive.lowering
        bodies = [x for value in eqn.params.values() for x in subjaxprs_of_value(value)]
        if bodies:
            total = total + sum((_flops(body) for body in bodies), 0)
        elif isinstance(rule, Shaped):
            total = total + math.prod(eqn.outvars[0].aval.shape) * _whole(rule.flops(eqn))
        elif eqn.outvars:
            counted = eqn.invars[0] if isinstance(rule, Reduce) else eqn.outvars[0]
            total = total + math.prod(counted.aval.shape) * _whole(own_cost(eqn))
    return total


def _whole(cost: Any) -> Any:
    return round(cost) if isinstance(cost, float) else cost
