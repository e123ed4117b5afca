"""`jit`: traces a function once for each signature and runs the compiled program."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from amdjax.core import events, recorded, trace as tracing
from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.backend import get_backend
from amdjax.core.boundaries import api_boundary
from amdjax.core.collector import rare_collections
from amdjax.core.config import config, refuse_execution
from amdjax.core.context import context, is_recording
from amdjax.core.dims.polynomial import forget
from amdjax.core.instantiate import instantiate, type_at
from amdjax.core.jaxpr import ClosedJaxpr, DebugInfo, jaxpr_as_fun
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.pytree import LEAF, PyTreeDef, tree_unflatten
from amdjax.core.ref import Ref
from amdjax.core.sharding import Space
from amdjax.core.tracebacks import hide_internal_frames
from amdjax.jit import recompiles
from amdjax.jit.arguments import Parameters
from amdjax.jit.donations import deleting, used_donations
from amdjax.jit.options import (
    check_function,
    checked_dynamic,
    chosen_device,
    compiling_with,
    padding_of,
    shardings_of,
    symbolic_shapes,
)
from amdjax.jit.phases import phase
from amdjax.jit.programs import Programs, Signature, all_programs, programs_of
from amdjax.jit.symbolic import (
    SymbolicTypes,
    has_symbolic_dims,
)
from amdjax.jit.variants import Variants
from amdjax.transforms.calls import bind_jit
from amdjax.transforms.flat import flatten_result, fun_location, fun_name, shaped
from amdjax.transforms.staging import with_read_shapes
from amdjax.transforms.symbolic_calls import Sizes, bind_at_sizes, has_functions

if TYPE_CHECKING:
    from amdjax.jit.arrays import Runner
    from amdjax.jit.shardings import Shardings
    from amdjax.jit.stages import Lowered, Traced
    from amdjax.runtime.devices import Placement

_BASE = tracing.eval_trace
#: Calls of a function that machine code tries one after the other, and how many of a signature may
#: become one: those with keys in another order are others, of NumPy's arrays there are none.
MOST_RECORDS, MOST_TRIES = 8, 32
_all_plain = frozenset((ConcreteArray,)).issuperset  # of types


@api_boundary
def jit(
    fun: Callable[..., Any] | None = None, /, *, in_shardings: Any = None,
    out_shardings: Any = None, static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None, keep_unused: bool = False,
    device: Any = None, backend: str | None = None, inline: bool = False,
    abstracted_axes: Any = None, compiler_options: dict[str, Any] | None = None,
    symbolic: Any = None, constraints: Sequence[str] = (), dynamic: str | None = None,
    buckets: Any = None, pad_value: Any = 0, lengths: Any = None,
) -> Any:  # fmt: skip
    """Compile a function of arrays.

    The function is traced when it meets a new signature (structure, shapes and dtypes of its
    arguments, values of its static ones) and the program runs from then on. It should be pure:
    Python side effects happen only while tracing.

    Args:
      fun: a function of pytrees of arrays; without it, `jit(static_argnums=…)` is a decorator.
      in_shardings: shardings of one device, a pytree that is a prefix of the arguments; they say
        where the function runs.
      out_shardings: shardings of the results, a prefix of them.
      static_argnums: positions of arguments that are compile-time constants; hashable.
      static_argnames: names of such parameters.
      donate_argnums: positions of arguments whose memory the results may take over; they cannot
        be used afterwards.
      donate_argnames: names of such parameters.
      keep_unused: keep arguments the program does not read.
      device: where to run, one of `devices()`; by default where the arguments are committed.
      backend: the platform on whose first device to run; of `device` and `backend`, give one.
      inline: whether the call vanishes into an enclosing traced program.
      abstracted_axes: not supported, must be None.
      compiler_options: settings of `amdjax.config` by name, in force while the function compiles,
        such as `{"memory_limit": 2**30}`; none are allowed where other traced functions call it.
      symbolic: shapes for which one trace serves, as texts of `export.symbolic_shape`: one for all
        arguments, a sequence with an entry for each positional one, or a dictionary by name.
        Entries are pytree prefixes, None where shapes are fixed. Arguments tell the sizes.
      constraints: what holds of the variables of `symbolic`, as "t <= 512".
      dynamic: "auto" makes axes symbolic in which a second call differs from the first, so that no
        third one of such sizes is compiled; "off" does not. `config.dynamic` says what None means.
      buckets: for variables of `symbolic` the sizes to choose from, as `{"t": [64, 128, 256]}`:
        arguments are padded to the next one, results cut to the sizes they would have without.
      pad_value: what arguments are filled up with.
      lengths: the parameter of `fun` that gets the size before padding, for masks, or a dictionary
        of these by variable; callers do not give it.

    Returns:
      A function like `fun`, with `lower`, `trace`, `eval_shape` and `clear_cache`.

    Raises:
      TypeError: `fun` is not callable, or an argument is neither array nor static.
      ValueError: a static argument cannot be hashed, a position is out of range, arguments are
        committed to different devices, or shapes do not fit `symbolic` and `constraints`.
      NotImplementedError: `abstracted_axes` is given.

        >>> @amdjax.jit
        ... def f(x):
        ...     return x * x + 1
        >>> print(f(3.0))
        10.0
    """
    options: dict[str, Any] = {
        "static_argnums": static_argnums, "static_argnames": static_argnames,
        "donate_argnums": donate_argnums, "donate_argnames": donate_argnames,
        "keep_unused": keep_unused, "inline": inline, "device": chosen_device(device, backend),
        "shardings": shardings_of(in_shardings, out_shardings),
        "compiler_options": compiler_options, "symbolic": symbolic,
        "constraints": constraints, "dynamic": dynamic,
        "buckets": buckets, "pad_value": pad_value, "lengths": lengths,
    }  # fmt: skip
    if abstracted_axes is not None:
        raise NotImplementedError("jit: abstracted_axes is not supported; use symbolic=")
    if fun is None:
        return functools.partial(JitFunction, **options)
    return JitFunction(fun, **options)


class JitFunction:
    """A function compiled for each signature it is called with; made by `jit`."""

    __slots__ = ("__dict__", "__weakref__", "_programs")

    def __init__(
        self, fun: Callable[..., Any], *, static_argnums: Any = None, static_argnames: Any = None,
        donate_argnums: Any = None, donate_argnames: Any = None, keep_unused: bool = False,
        inline: bool = False, device: Any = None, shardings: Shardings | None = None,
        compiler_options: dict[str, Any] | None = None, symbolic: Any = None,
        constraints: Sequence[str] = (), dynamic: str | None = None,
        buckets: Any = None, pad_value: Any = 0, lengths: Any = None,
    ):  # fmt: skip
        check_function(fun)
        self._made_with = {
            "static_argnums": static_argnums, "static_argnames": static_argnames,
            "donate_argnums": donate_argnums, "donate_argnames": donate_argnames,
            "keep_unused": keep_unused, "inline": inline, "device": device, "shardings": shardings,
            "compiler_options": compiler_options, "symbolic": symbolic, "constraints": constraints,
            "dynamic": dynamic, "buckets": buckets, "pad_value": pad_value, "lengths": lengths,
        }  # fmt: skip
        functools.update_wrapper(self, fun)
        self._fun, self._name = fun, fun_name(fun)
        self._inline, self._keep_unused, self._device = inline, keep_unused, device
        self._shardings, self._compiler_options = shardings, compiler_options or {}
        if shardings is not None and device is None:
            self._device = shardings.device
        self._parameters = Parameters(
            fun, static_argnums, static_argnames, donate_argnums, donate_argnames
        )
        self._shapes = symbolic_shapes(self._parameters, symbolic, constraints)
        self._dynamic = checked_dynamic(dynamic, symbolic)
        self._buckets = padding_of(fun, self._shapes, buckets, pad_value, lengths)
        self._parameters.refuse_static(
            () if self._buckets is None else self._buckets.lengths.values()
        )
        asked = tuple((k, repr(v)) for k, v in sorted(self._compiler_options.items()))
        kind = self._parameters.kind, inline, keep_unused, device, dynamic, asked
        own = shardings is not None or self._shapes is not None
        self._programs = programs = Programs() if own else programs_of(fun, kind)
        self._compiled, self._traced = programs.compiled, programs.traced
        self._compiled_flat = programs.compiled_flat

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        # What is compiled stays in this process.
        return functools.partial(JitFunction, **self._made_with), (self._fun,)

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self._fun!r}>"
        except Exception:  # of the function's own
            return "<PjitFunction>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if context.trace is not _BASE:
            return self._call_traced(args, kwargs)
        try:
            # The usual small call, all arguments arrays, needs no trees.
            # `disable_jit` is part of the key, and nothing is ever compiled under it.
            key = [config._trace_key]
            for x in args:
                if type(x) is not ConcreteArray:
                    break
                key.append(x.aval)
            else:
                found = None if kwargs else self._compiled_flat.get(tuple(key))
                if found is not None:
                    if found.tries < MOST_TRIES:
                        self._record(found, args, kwargs, None, args)
                    if events.recorder is None:
                        outs = found.run(args)
                    else:
                        with events.span(self._name, "call"):
                            outs = found.run(args)
                    return outs[0] if found.tree is LEAF else found.tree.unflatten(outs)
            return self._call_tree(args, kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    def _call_tree(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call on any pytrees; compiles what is new."""
        if config.disable_jit:
            return self._fun(*args, **kwargs)
        leaves, tree, static = self._parameters.leaves_of(args, kwargs)
        place = None
        if not _all_plain(map(type, leaves)):
            leaves = self._parameters.as_arrays(leaves, args, kwargs)
            place = self._placement(leaves)
        avals = [x.aval for x in leaves]
        key = (tree, static, config._trace_key, place, *avals)
        try:
            found = self._compiled.get(key)
        except ValueError:
            raise
        except Exception as e:
            raise _incomparable(self._name, e) from e
        if found is None:
            start, before = time.perf_counter(), self._programs.work
            found = self._compile(leaves, tree, static, place)
            self._note_compiled(key, found, time.perf_counter() - start, before)
            self._programs.keep(key, found)
        elif found.tries < MOST_TRIES:
            self._record(found, args, kwargs, static, leaves)
        flat = place is None and static is None and len(args) == len(leaves)
        if flat and _all_plain(map(type, args)):
            self._compiled_flat[config._trace_key, *avals] = found
        if events.recorder is None:
            outs = found.run(leaves)
        else:
            with events.span(self._name, "call"):
                outs = found.run(leaves)
        return found.tree.unflatten(outs)

    def _record(
        self, found: Signature, args: Any, kwargs: dict[str, Any], static: Any, leaves: Any
    ) -> None:
        """Let machine code repeat such a call from now on."""
        programs = self._programs
        if len(programs.records) < MOST_RECORDS and recorded.is_wanted():
            found.tries += 1
            record = recorded.record_call(found, args, kwargs, static, leaves)
            if record is not None:
                programs.records = (*programs.records, record)

    def _note_compiled(
        self, key: Any, found: Signature, seconds: float, before: recompiles.Work
    ) -> None:
        """Keep for `explain_recompiles` what a new signature was."""
        tree, static, _, _, *avals = key
        work = self._programs.work.since(before)
        if found.symbolic is not None and not any(work):
            recompiles.note_served(self._where)
            return
        names = self._parameters.leaf_names(avals, tree, static)
        refused = None
        if self._is_dynamic:
            refused = self._programs.dynamic.reason(avals, tree, static)
        known = reversed(self._compiled)
        recompiles.note(self._where, known, key, names, seconds, work, found.symbolic, refused)

    @functools.cached_property
    def _where(self) -> str:
        """The function's name and place, for people to read."""
        return f"{self._name} ({fun_location(self._fun)})"

    @property
    def _is_dynamic(self) -> bool:
        return self._shapes is None and (self._dynamic or config.dynamic) == "auto"

    def _placement(self, leaves: Sequence[Any]) -> Any:
        """Where the program runs; None if all its arguments are in the host's memory."""
        held = [x.value if type(x) is Ref else x for x in leaves]
        if self._device or _all_plain(map(type, held)):
            return None
        return get_backend().placement_of(held, self._name)

    # Tracing and compiling

    def _trace(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[ClosedJaxpr, PyTreeDef]:
        out_tree: list[PyTreeDef] = []

        def flat(*values: Any) -> list[Any]:
            args, kwargs = self._parameters.restore(values[: tree.num_leaves], tree, static)
            if self._buckets is not None:
                given = zip(self._buckets.lengths.values(), values[tree.num_leaves :])
                kwargs = {**kwargs, **dict(given)}
            outs, structure = flatten_result(self._fun(*args, **kwargs), self._name)
            out_tree.append(structure)
            return outs if self._shardings is None else self._shardings.in_memory(outs, structure)

        names = self._parameters.leaf_names(avals, tree, static)
        info = DebugInfo("jit", self._name, fun_location(self._fun), names)
        closed = trace_to_jaxpr(flat, avals, debug_info=info)
        return closed, out_tree[-1]

    def _program(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[ClosedJaxpr, PyTreeDef, list[Any]]:
        """The program of a signature, and the values of enclosing traces it takes first."""
        key = (tree, static, config.trace_key(), *avals)
        try:
            found = self._traced.get(key)
        except ValueError:
            raise
        except Exception as e:
            raise _incomparable(self._name, e) from e
        if found is not None:
            return *found, []
        self._before_tracing(key)
        self._programs.traces += 1
        closed, out_tree = self._trace(avals, tree, static)
        closed, hoisted = hoist_tracers(closed)
        if not hoisted:  # programs that mention an enclosing trace are only good inside it
            self._traced[key] = closed, out_tree
        return closed, out_tree, hoisted

    def _computed_on(self, avals: list[Any]) -> list[Any]:
        """The types that a call is traced for: what `offload_copy` copies is on the device."""
        if not self._compiler_options.get("offload_copy", config.offload_copy):
            return avals
        return [
            a.update(memory_space=Space.Device) if isinstance(a, ShapedArray) else a for a in avals
        ]

    def _before_tracing(self, key: tuple[Any, ...]) -> None:
        """What settings want to be done about a signature that was not traced yet."""
        if config.no_tracing:
            raise RuntimeError(
                f"re-tracing function {self._name} at {fun_location(self._fun)} for `jit`, but "
                "'no_tracing' is set"
            )
        if config.explain_cache_misses:
            # late: loads with the first program
            from amdjax.jit.misses import explain

            tree, static, _, *avals = key
            names = self._parameters.leaf_names(avals, tree, static)
            explain(self._fun, list(self._traced), key, names)

    def _compile(
        self, leaves: Sequence[Any], tree: PyTreeDef, static: Any, place: Placement | None
    ) -> Signature:
        avals = self._computed_on([x.aval for x in leaves])
        refuse_execution(self._name)
        if self._buckets is not None and self._shapes is not None:
            self._check_lengths(tree, static)
            self._buckets.of(self._shapes.of(avals, tree, static).sizes)  # raises if there is none
        with rare_collections, phase(self._name, "trace", "jaxpr_trace"):
            types, serves, program = self._symbolic_program(avals, tree, static)
            closed, out_tree, refs = program
        donated = self._parameters.donations(tree, static)
        out_avals = closed.out_avals
        asked = self._shardings is not None or self._buckets is not None or any(donated)
        if types is not None and serves and asked:
            out_avals = [type_at(a, types.sizes) for a in out_avals]
        if self._shardings is not None:
            self._shardings.check(avals, out_avals, tree, out_tree, static)
        if self._device is not None:
            place = self._device.committed
        elif place is None:
            place = get_backend().program_placement()
        options = compiling_with(self._compiler_options)
        with options, phase(self._name, "compile", "backend_compile"):
            flags = (*donated, *(False,) * len(self._length_types))
            if types is None or not serves:
                self._programs.single_compiles += 1
                run = get_backend().compile(closed, flags, refs, place)
            else:
                key = (tree, static, config.trace_key(), place, *types.avals)
                variants = self._variants(key, closed, flags, refs, place)
                if self._buckets is None:
                    run = variants.runner(types.sizes)
                    self._programs.single_compiles += variants.reason is not None
                else:
                    run = self._bucketed(variants, types, tree, static, out_avals)
            if types is not None and self._buckets is not None:
                run = self._buckets.with_lengths(run, types.sizes)
            if any(donated):
                run = deleting(run, used_donations(self._name, avals, donated, out_avals))
        if self._shardings is not None:
            run = self._shardings.laid_out(run, out_tree)
        return Signature(run, out_tree, types.avals if types is not None and serves else None)

    def _bucketed(
        self, variants: Variants, types: SymbolicTypes, tree: PyTreeDef, static: Any, outs: Any
    ) -> Runner:
        """A program of padded arguments as one of those that are not."""
        assert self._buckets is not None
        sizes = self._buckets.of(types.sizes)
        violated = types.scope.violated(sizes)
        if violated is not None:
            raise ValueError(
                f"jit of {self._name}: the constraint '{violated}' does not hold of arguments that "
                f"are padded to {sizes}: choose other buckets"
            )
        padded = [type_at(a, sizes) for a in types.avals]
        if types.scope.is_apart(sizes):
            closed, _, refs = self._program([*padded, *self._length_types], tree, static)
            self._programs.single_compiles += 1
            run = get_backend().compile(closed, variants.donated, refs, variants.place)
        else:
            run = variants.runner(sizes)
        return self._buckets.padding(run, padded, outs)

    def _check_lengths(self, tree: PyTreeDef, static: Any) -> None:
        if self._buckets is not None and self._buckets.lengths:
            self._buckets.check_call(
                *self._parameters.restore(range(tree.num_leaves), tree, static)
            )

    @property
    def _length_types(self) -> Sequence[Any]:
        """The types of arguments that are sizes before padding."""
        return () if self._buckets is None else self._buckets.length_types

    def _symbolic_program(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[SymbolicTypes | None, bool, tuple[ClosedJaxpr, PyTreeDef, list[Any]]]:
        """Symbolic types of a signature, whether their program serves it, and the program."""
        types, dynamic = None, self._programs.dynamic if self._is_dynamic else None
        lengths = self._length_types
        if self._shapes is not None:
            types = self._shapes.of(avals, tree, static)
        elif dynamic is not None:
            types = dynamic.of(avals, tree, static)
        refused: list[Exception] = []
        served = None if types is None else self._serving(types, refused, tree, static)
        if served is not None:
            return served[0], True, served[1]
        program = self._program([*avals, *lengths], tree, static)
        if refused and dynamic is not None:  # though it can be traced for these sizes
            dynamic.refuse(avals, tree, static, self._name, refused[0])
        return types, False, program

    def _serving(
        self, types: SymbolicTypes, refused: list[Exception], tree: PyTreeDef, static: Any
    ) -> tuple[SymbolicTypes, tuple[ClosedJaxpr, PyTreeDef, list[Any]]] | None:
        """The most general types of a signature of which the program serves it, and that program.

        Where the program for all sizes does not, as some are equal or 1, one with fewer variables
        may; None where it takes numbers for all of them. What the function raises of the most
        general types is added to `refused`, or raised where the user says them.
        """
        most_general = types
        while types.sizes:
            case = types.scope.special_case(types.sizes)
            if case and self._buckets is not None:
                return None  # all variables that are padded stay
            if case:
                types = types.where(case)
                continue
            if types.scope.is_apart(types.sizes):  # for all sizes that are as these
                return None
            try:
                program = self._program([*types.avals, *self._length_types], tree, static)
            except Exception as e:
                if types.scope.is_apart(types.sizes):  # tracing told what it took for unequal
                    continue
                if types is most_general and not self._is_dynamic:
                    raise
                if types is most_general:
                    refused.append(e)
                return None
            if not types.scope.is_apart(types.sizes):
                return types, program
        return None

    def _variants(
        self, key: Any, closed: ClosedJaxpr, donated: Any, refs: Sequence[Any], place: Any
    ) -> Variants:
        """The compiled forms of a program of symbolic shapes."""
        found = self._programs.variants.get(key)
        if found is None or found.closed is not closed:
            found = self._programs.variants[key] = Variants(closed, donated, refs, place)
            if self._buckets is not None:
                self._buckets.warn_of_mixing(closed, closed.in_avals)
        return found

    def _call_traced(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call inside another trace: one `jit` equation."""
        if config.disable_jit:
            return self._fun(*args, **kwargs)
        leaves, tree, static = self._parameters.leaves_of(args, kwargs)
        self._parameters.check_leaves(leaves, args, kwargs)
        avals = [get_aval(x) for x in leaves]
        types, (closed, out_tree, hoisted) = self._program_inside(avals, tree, static)
        if self._length_types:
            assert types is not None and self._buckets is not None
            leaves = [*leaves, *self._buckets.lengths_at(types.sizes)]
        if self._compiler_options:
            raise ValueError(
                "`compiler_options` can only be passed to top-level `jax.jit`, got "
                f"compiler_options={self._compiler_options} for {self._name}, which is called "
                "inside another traced function."
            )
        if self._shardings is not None:
            self._shardings.check(avals, closed.out_avals, tree, out_tree, static)
            leaves = self._shardings.mark_arguments(leaves, tree, static)
        if types is not None and has_symbolic_dims(closed.in_avals):
            sizes = Sizes(types.scope, tuple(sorted(types.sizes.items())))
            again = lambda: self._program([*avals, *self._length_types], tree, static)[0]
            outs = bind_at_sizes(
                closed, [*hoisted, *leaves], sizes, self._name, None if hoisted else again
            )
        elif self._inline:
            outs = jaxpr_as_fun(closed)(*hoisted, *leaves)
        else:
            outs = self._bound(closed, hoisted, leaves, tree, static)
        if self._shardings is not None:
            outs = self._shardings.mark_results(outs, out_tree)
        return tree_unflatten(out_tree, outs)

    def _program_inside(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[SymbolicTypes | None, tuple[ClosedJaxpr, PyTreeDef, list[Any]]]:
        """The program for a call inside another trace, and the sizes where they are known.

        It is the symbolic one where transforms compute, so that what they make of it serves for
        all sizes; where another program is recorded, and for references and layouts, that which
        it is for the sizes.
        """
        lengths = self._length_types
        self._check_lengths(tree, static)
        if has_symbolic_dims(avals):
            if lengths:
                raise ValueError(f"jit of {self._name}: lengths of symbolic shapes are not known")
            if self._shapes is not None:
                self._shapes.check(avals, tree, static)
            return None, self._program(avals, tree, static)
        recording = is_recording()
        if self._shapes is None and recording:
            return None, self._program(avals, tree, static)
        types, serves, program = self._symbolic_program(avals, tree, static)
        closed, out_tree, hoisted = program
        if types is None or not serves:
            return types, program
        plain = all(type(a) is ShapedArray for a in closed.in_avals)
        if not recording and plain and not closed.effects and self._shardings is None:
            return types, program
        if hoisted or has_functions(closed):
            return types, self._program([*avals, *lengths], tree, static)
        key = (tree, static, config.trace_key(), *avals, *lengths)
        if key not in self._traced:
            self._traced[key] = instantiate(closed, types.sizes), out_tree
        return types, (*self._traced[key], [])

    def _bound(
        self, closed: ClosedJaxpr, hoisted: list[Any], leaves: Any, tree: PyTreeDef, static: Any
    ) -> list[Any]:
        """The `jit` equation."""
        donated = (False,) * len(hoisted) + self._parameters.donations(tree, static)
        donated += (False,) * len(self._length_types)
        return bind_jit(
            closed, [*hoisted, *leaves], name=self._name, donated_invars=donated,
            keep_unused=self._keep_unused,
        )  # fmt: skip

    # Ahead of time

    def _abstract(
        self, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Traced, PyTreeDef, Any, list[Any]]:
        # late: loads with the first program
        from amdjax.jit.shardings import shardings_as_traced
        from amdjax.jit.stages import Traced

        if self._buckets is not None:
            raise NotImplementedError(f"{self._name}: functions with buckets compile when called")
        leaves, tree, static = self._parameters.split(args, kwargs)
        avals = self._computed_on([shaped(x) for x in with_read_shapes(leaves)])
        if self._shapes is not None and not has_symbolic_dims(avals):
            avals = self._shapes.of(avals, tree, static).avals
        closed, out_tree = self._trace(avals, tree, static)
        donated = self._parameters.donations(tree, static)
        shardings: Sequence[Any] | None
        if self._shardings is not None:
            self._shardings.check(avals, closed.out_avals, tree, out_tree, static)
            shardings = self._shardings.of_results(out_tree)
        else:
            shardings = shardings_as_traced(closed, leaves)
        again = functools.partial(self._trace, tree=tree, static=static)
        traced = Traced(
            closed, tree, out_tree, self._name, donated, shardings, again, self._compiler_options
        )
        return traced, tree, static, leaves

    @api_boundary
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The program for arguments like these, which may be `ShapeDtypeStruct`s."""
        return self._abstract(args, kwargs)[0]

    @api_boundary
    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program for arguments like these, ready to compile; see `stages.Lowered`."""
        return self.trace(*args, **kwargs).lower()

    @api_boundary
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the result, and its `out_shardings`, without computing it."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget all compiled signatures."""
        self._programs.clear()

    def _cache_size(self) -> int:
        return len(self._compiled)


recorded.called.append((JitFunction, Programs))


def _incomparable(name: str, error: Exception) -> ValueError:
    """The error of a call whose key cannot be compared with those of former calls."""
    return ValueError(
        f"static arguments should be comparable using __eq__: those of {name} raise "
        f"{type(error).__name__}: {error}"
    )


def clear_caches() -> None:
    """Forget every traced and compiled program of this process; the disk cache stays.

    >>> amdjax.clear_caches()
    """
    # late: loads with the first program
    from amdjax.jit.kernels import clear_loaded

    recompiles.forget()
    for programs in list(all_programs):
        programs.clear()
    get_backend().clear()
    clear_loaded()
    forget()  # what was computed of sizes
