"""`jit`: traces a function once for each signature and runs the compiled program."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core import events, trace as tracing, transfers
from amdjax.core.array import ConcreteArray, PlacedArray, asarray_concrete, get_backend
from amdjax.core.aval import get_aval, is_valid_value
from amdjax.core.config import config
from amdjax.core.context import context
from amdjax.core.errors import api_boundary, hide_internal_frames
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.key_use import watched_program
from amdjax.core.pytree import (
    LEAF,
    PyTreeDef,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)
from amdjax.core.ref import Ref
from amdjax.core.trace import Tracer, hoist_tracers, trace_to_jaxpr
from amdjax.jit.refs import compile_on_refs
from amdjax.transforms.calls import bind_jit
from amdjax.transforms.flat import debug_info, flatten_result, fun_name, shaped, signature

if TYPE_CHECKING:
    from amdjax.jit.cpu.program import Runner
    from amdjax.jit.shardings import Shardings
    from amdjax.jit.stages import Lowered, Traced
    from amdjax.runtime.devices import Device, Placement

__all__ = ["JitFunction", "clear_caches", "jit"]

_BASE = tracing.eval_trace
_OWN = frozenset((ConcreteArray, PlacedArray, Ref))
_all_plain = frozenset((ConcreteArray,)).issuperset  # of types
_all_programs: weakref.WeakSet[_Programs] = weakref.WeakSet()
_shared: weakref.WeakKeyDictionary[Any, dict[Any, _Programs]] = weakref.WeakKeyDictionary()


@api_boundary
def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
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
      compiler_options: accepted, none are needed.

    Returns:
      A function like `fun`, with `lower`, `trace`, `eval_shape` and `clear_cache`.

    Raises:
      TypeError: `fun` is not callable, or an argument is neither array nor static.
      ValueError: a static argument cannot be hashed, a position is out of range, or arguments are
        committed to different devices.

    Example:
      >>> import amdjax
      >>> @amdjax.jit
      ... def f(x):
      ...     return x * x + 1
      >>> print(f(3.0))
      10.0
    """
    options: dict[str, Any] = {
        "static_argnums": static_argnums, "static_argnames": static_argnames,
        "donate_argnums": donate_argnums, "donate_argnames": donate_argnames,
        "keep_unused": keep_unused, "inline": inline, "device": _chosen_device(device, backend),
        "shardings": _shardings(in_shardings, out_shardings),
    }  # fmt: skip
    if abstracted_axes is not None:
        raise NotImplementedError("jit: abstracted_axes is not supported; shapes are static")
    if fun is None:
        return functools.partial(JitFunction, **options)
    return JitFunction(fun, **options)


class _Programs:
    """The signatures of a function that were traced and compiled."""

    __slots__ = ("__weakref__", "compiled", "compiled_flat", "traced")

    def __init__(self) -> None:
        self.compiled: dict[Any, _Signature] = {}
        self.compiled_flat: dict[Any, _Signature] = {}  # those whose arguments are arrays
        self.traced: dict[Any, tuple[ClosedJaxpr, PyTreeDef]] = {}
        _all_programs.add(self)

    def clear(self) -> None:
        self.compiled.clear()
        self.compiled_flat.clear()
        self.traced.clear()


def _check_function(fun: Any) -> None:
    if isinstance(fun, staticmethod):
        raise TypeError(
            f"staticmethod arguments are not supported, got {fun!r}: put staticmethod around jit"
        )
    if not callable(fun):
        raise TypeError(f"Expected a callable value: jit got {fun!r} of type {type(fun).__name__}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun!r}")


def _programs_of(fun: Callable[..., Any], kind: Any) -> _Programs:
    """What `jit` of a function has compiled; shared by all that jit it with the same settings."""
    hashed: Any = type(fun).__hash__
    if hashed is not object.__hash__:  # equal ones need not be the same
        return _Programs()
    try:
        return _shared.setdefault(fun, {}).setdefault(kind, _Programs())
    except TypeError:  # no weak references
        return _Programs()


class JitFunction:
    """A function compiled for each signature it is called with; made by `jit`."""

    def __init__(
        self,
        fun: Callable[..., Any],
        *,
        static_argnums: Any = None,
        static_argnames: Any = None,
        donate_argnums: Any = None,
        donate_argnames: Any = None,
        keep_unused: bool = False,
        inline: bool = False,
        device: Any = None,
        shardings: Shardings | None = None,
    ):
        _check_function(fun)
        functools.update_wrapper(self, fun)
        self._fun, self._name = fun, fun_name(fun)
        self._inline, self._keep_unused, self._device = inline, keep_unused, device
        self._shardings = shardings
        if shardings is not None and device is None:
            self._device = shardings.device
        self._static, self._static_names = _resolve(fun, static_argnums, static_argnames, "static")
        self._donated, self._donated_names = _resolve(
            fun, donate_argnums, donate_argnames, "donate"
        )
        for what, both in (
            ("argnums", {*self._static} & {*self._donated}),
            ("argnames", self._static_names & self._donated_names),
        ):
            if both:
                raise ValueError(
                    f"static_{what} and donate_{what} cannot intersect: {sorted(both)} are in both"
                )
        self._plain = not (self._static or self._static_names)
        self._no_donation = not (self._donated or self._donated_names)
        kind = (
            self._static, self._static_names, self._donated, self._donated_names, inline,
            keep_unused, device,
        )  # fmt: skip
        self._programs = programs = _Programs() if shardings else _programs_of(fun, kind)
        self._compiled, self._traced = programs.compiled, programs.traced
        self._compiled_flat = programs.compiled_flat

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {self._name}>"

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
                    if events.recorder is None:
                        outs = found.run(args)
                    else:
                        outs = events.timed(self._name, "call", found.run, args)
                    return outs[0] if found.tree is LEAF else found.tree.unflatten(outs)
            return self._call_tree(args, kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    def _call_tree(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call on any pytrees; compiles what is new."""
        if config.disable_jit:
            return self._fun(*args, **kwargs)
        leaves, tree, static = self._leaves(args, kwargs)
        place = None
        if not _all_plain(map(type, leaves)):
            for i, x in enumerate(leaves):
                if type(x) not in _OWN:
                    leaves[i] = self._concrete(x, args, kwargs)
            held = [x.value if type(x) is Ref else x for x in leaves]
            if not _all_plain(map(type, held)):
                place = self._placement(held)
        avals = [x.aval for x in leaves]
        key = (tree, static, config._trace_key, place, *avals)
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self._compile(leaves, tree, static, place)
        flat = place is None and static is None and len(args) == len(leaves)
        if flat and _all_plain(map(type, args)):
            self._compiled_flat[config._trace_key, *avals] = found
        return found.tree.unflatten(events.timed(self._name, "call", found.run, leaves))

    def _placement(self, leaves: Sequence[ConcreteArray]) -> Any:
        """Where the program runs, some of its arguments being placed."""
        return None if self._device else get_backend().placement_of(leaves, self._name)

    # Signatures

    def _leaves(self, args: Any, kwargs: Any) -> tuple[list[Any], PyTreeDef, Any]:
        """As `_split`, shorter for calls without keywords of functions without static arguments."""
        if self._plain and not kwargs:
            return *tree_flatten(args), None
        return self._split(args, kwargs)

    def _split(self, args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], PyTreeDef, Any]:
        """Leaves and structure of the traced arguments, and the static ones as a hashable."""
        n = len(args)
        positions = {i % n if i < 0 else i for i in self._static if -n <= i < n}
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
                    f"calls. jit of {self._name} got the static argument {name!r} of type "
                    f"{type(value).__name__}; use a tuple instead of a list, or pass it as a "
                    "traced argument."
                ) from None

    def _restore(
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

    def _concrete(self, x: Any, args: Any, kwargs: dict[str, Any]) -> ConcreteArray:
        """A leaf that is not an array of ours yet. NumPy arrays are read where they are."""
        if isinstance(x, np.ndarray) and x.flags.c_contiguous and is_valid_value(x):
            aval = get_aval(x)
            if aval.dtype == x.dtype:
                from amdjax.runtime.memory import Buffer

                transfers.check(
                    "host_to_device", f"an argument of {self._name}: {aval.str_short()}"
                )

                return ConcreteArray(aval, Buffer.from_numpy(x))
        if isinstance(x, Tracer):
            return tracing.eval_trace.concrete(x)  # a leaked tracer: raises
        if not is_valid_value(x) and not hasattr(x, "__jax_array__"):
            self._reject(args, kwargs)
        return asarray_concrete(x)

    def _reject(self, args: Any, kwargs: dict[str, Any]) -> None:
        for path, leaf in tree_flatten_with_path((args, kwargs))[0]:
            if is_valid_value(leaf) or hasattr(leaf, "__jax_array__"):
                continue
            where = self._path(args, path[1:], path[0].idx == 0)
            raise TypeError(
                f"Error interpreting argument to {self._name} as an abstract array. The "
                f"problematic value is of type {type(leaf)} and was passed to the function at path "
                f"{where}: {leaf!r} is not a valid JAX type. Arguments are arrays, scalars, or "
                "pytrees of them; mark others with static_argnums or static_argnames."
            )

    def _path(self, args: Any, path: Any, positional: bool) -> str:
        """What the function calls a part of its arguments."""
        if not positional:
            return f"{path[0].key}{keystr(path[1:])}"
        sig = signature(self._fun)
        names = list(sig.bind_partial(*args).arguments) if sig is not None else []
        first = path[0].idx
        kind = sig.parameters[names[first]].kind if sig is not None and first < len(names) else None
        if kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            return f"{names[first]}{keystr(path[1:])}"
        return f"args{keystr(path)}"

    def _donations(self, leaves: Sequence[Any], tree: PyTreeDef, static: Any) -> tuple[bool, ...]:
        if self._no_donation:
            return (False,) * len(leaves)
        marks = tree_unflatten(tree, [False] * len(leaves))
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

    # Tracing and compiling

    def _trace(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[ClosedJaxpr, PyTreeDef]:
        out_tree: list[PyTreeDef] = []

        def flat(*values: Any) -> list[Any]:
            args, kwargs = self._restore(values, tree, static)
            outs, structure = flatten_result(self._fun(*args, **kwargs), self._name)
            out_tree.append(structure)
            return outs

        args, kwargs = self._restore(avals, tree, static)
        closed = trace_to_jaxpr(flat, avals, debug_info=debug_info("jit", self._fun, args, kwargs))
        return closed, out_tree[-1]

    def _program(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[ClosedJaxpr, PyTreeDef, list[Any]]:
        """The program of a signature, and the values of enclosing traces it takes first."""
        key = (tree, static, config.trace_key(), *avals)
        found = self._traced.get(key)
        if found is not None:
            return *found, []
        closed, out_tree = self._trace(avals, tree, static)
        closed, hoisted = hoist_tracers(closed)
        if not hoisted:  # programs that mention an enclosing trace are only good inside it
            self._traced[key] = closed, out_tree
        return closed, out_tree, hoisted

    def _compile(
        self, leaves: Sequence[Any], tree: PyTreeDef, static: Any, place: Placement | None
    ) -> _Signature:
        from amdjax.jit.placement import compile_placed  # loads LLVM

        avals = [x.aval for x in leaves]
        if self._shardings is not None:
            self._shardings.check_arguments(avals, tree, static)
        with _phase(self._name, "trace", "jaxpr_trace"):
            closed, out_tree, refs = self._program(avals, tree, static)
        if self._device is not None:
            place = self._device.committed
        elif place is None:
            place = get_backend().default_placement()
        with _phase(self._name, "compile", "backend_compile"):
            run = compile_on_refs(
                lambda program, donated: compile_placed(program, donated, place),
                closed,
                self._donations(leaves, tree, static),
                refs,
            )
        if self._shardings is not None:
            run = self._shardings.laid_out(run, out_tree, closed.out_avals)
        return _Signature(_checked(run, closed, refs), out_tree)

    def _call_traced(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call inside another trace: one `jit` equation."""
        if config.disable_jit:
            return self._fun(*args, **kwargs)
        leaves, tree, static = self._leaves(args, kwargs)
        for x in leaves:
            if not is_valid_value(x) and not hasattr(x, "__jax_array__"):
                self._reject(args, kwargs)
        avals = [get_aval(x) for x in leaves]
        closed, out_tree, hoisted = self._program(avals, tree, static)
        donated = (False,) * len(hoisted) + self._donations(leaves, tree, static)
        outs = bind_jit(
            closed, [*hoisted, *leaves], name=self._name, donated_invars=donated,
            inline=self._inline, keep_unused=self._keep_unused,
        )  # fmt: skip
        return tree_unflatten(out_tree, outs)

    # Ahead of time

    def _abstract(
        self, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Traced, PyTreeDef, Any, list[Any]]:
        from amdjax.jit.stages import Traced

        leaves, tree, static = self._split(args, kwargs)
        closed, out_tree = self._trace([shaped(x) for x in leaves], tree, static)
        donated = self._donations(leaves, tree, static)
        return Traced(closed, tree, out_tree, self._name, donated), tree, static, leaves

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
        """Shapes and dtypes of the result, without computing it."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget all compiled signatures."""
        self._programs.clear()

    def _cache_size(self) -> int:
        return len(self._compiled)


@contextmanager
def _phase(name: str, category: str, event: str) -> Iterator[None]:
    """A part of compiling, in the trace and for listeners."""
    told = events.duration(f"/jax/core/compile/{event}_duration", fun_name=name)
    with told, events.span(name, category):
        yield


class _Signature:
    """A compiled signature: how to run it and what the result looks like."""

    __slots__ = ("run", "tree")

    def __init__(self, run: Runner, tree: PyTreeDef):
        self.run, self.tree = run, tree


def _checked(run: Runner, closed: ClosedJaxpr, refs: Sequence[Any]) -> Runner:
    """The program itself; under `debug_nans`, one that looks for where a NaN first appears.

    Under `debug_key_reuse` one that looks for keys that were used before.
    """
    if config.debug_key_reuse:
        run = watched_program(closed, run, refs)
    if not (config.debug_nans or config.debug_infs):
        return run
    from amdjax.jit.debugging import find_invalid, has_invalid

    def checked(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        outs = run(args)
        if has_invalid(outs):
            find_invalid(closed, args)
        return outs

    return checked


def _shardings(arguments: Any, results: Any) -> Shardings | None:
    """What `jit` was told of the layout of arguments and results."""
    if arguments is None and results is None:
        return None
    from amdjax.jit.shardings import Shardings

    return Shardings(arguments, results)


def _chosen_device(device: Any, backend: str | None) -> Device | None:
    """The device that `jit` was given, or the first one of the platform."""
    if device is None and backend is None:
        return None
    from amdjax.jit.placement import checked_device
    from amdjax.runtime.devices import devices

    if device is not None and backend is not None:
        raise ValueError("jit: give either device or backend, not both")
    return devices(backend)[0] if device is None else checked_device(device, "jit")


def _resolve(fun: Any, nums: Any, names: Any, what: str) -> tuple[tuple[int, ...], frozenset[str]]:
    """Positions and names that both speak of the same parameters, as far as they are known."""
    if nums is None:
        nums = ()
    elif isinstance(nums, (int, np.integer)):
        nums = (nums,)
    elif not isinstance(nums, Iterable):
        raise TypeError(f"jit: {what}_argnums must be ints, got {nums!r}")
    given_nums = tuple(nums)
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
    for s in given_names:
        if s not in sig.parameters and not keywords:
            raise ValueError(
                f"jit: {what}_argnames names {s!r}, but {fun_name(fun)} has the parameters "
                f"{list(sig.parameters)}."
            )
    # A default that the caller leaves out is a constant anyway, so both ways may be merged.
    nums_all = {*given_nums, *(positional.index(s) for s in given_names if s in positional)}
    names_all = {
        *given_names,
        *(positional[n] for n in given_nums if -len(positional) <= n < len(positional)),
    }
    return tuple(sorted(nums_all)), frozenset(names_all)


def clear_caches() -> None:
    """Forget every traced and compiled program of this process; the disk cache stays."""
    from amdjax.jit.kernels import clear_loaded

    for programs in list(_all_programs):
        programs.clear()
    get_backend().clear()
    clear_loaded()
