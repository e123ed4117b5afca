"""What the stages after tracing share: what they tell of the traced program, and its arguments."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.dims import DimSize
from amdjax.core.key_paths import DictKey, KeyPath, SequenceKey, keystr
from amdjax.core.pytree import tree_flatten, tree_flatten_with_path
from amdjax.core.ref import Ref
from amdjax.core.trace import Tracer


def _of_traced(name: str, doc: str) -> Any:
    """An attribute that a later stage has from the traced program it comes from."""
    return property(lambda stage: getattr(stage.traced, name), doc=doc)


class AfterTracing:
    """What later stages tell of the traced program they come from."""

    traced: Any
    in_tree = _of_traced("in_tree", "The structure of the arguments, `(args, kwargs)`.")
    out_tree = _of_traced("out_tree", "The structure of the results.")
    args_info = _of_traced(
        "args_info", "The arguments, `(args, kwargs)`, as a pytree of `ArgInfo`."
    )
    out_info = _of_traced(
        "out_info",
        "Shapes, dtypes and `out_shardings` of the result, as a pytree of `ShapeDtypeStruct`.",
    )
    in_avals = _of_traced("in_avals", "The types of the arguments, `(args, kwargs)`.")
    out_avals = _of_traced("out_avals", "The types of the results.")
    donate_argnums = _of_traced(
        "donate_argnums", "Positions of the donated ones among the leaves of the arguments."
    )


class Saved:
    """Compiled programs, which may be kept in a file."""

    traced: Any

    @property
    def target_name(self) -> str:
        """What it was compiled for: "cpu", or the name of a GPU."""
        raise NotImplementedError

    def save(self, path: Any, *, targets: Sequence[str] | None = None, **options: Any) -> None:
        """Write the program to a file, with machine code, which `amdjax.load_artifact` reads.

        Args:
          path: the file, mostly `*.amdjax`. It is written beside it and renamed.
          targets: what machine code is made for; by default what it was compiled for.
          **options: `example`, `key` and `metadata` as for `export.Exported.save`.

        Raises:
          ValueError: the program calls Python functions, works on references, takes random keys, or
            its arguments or results are in containers other than tuples, lists and dictionaries.
        """
        # A room above the compiler.
        of_traced = importlib.import_module("amdjax.export").Exported.of_traced
        of_traced(self.traced).save(path, targets=targets or (self.target_name,), **options)


def called_with(traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of a call's arguments as arrays and references.

    Raises:
      TypeError: they have another structure than those that were traced, or are tracers.
    """
    leaves = leaves_of(traced, args, kwargs)
    for x in leaves:
        if isinstance(x, Tracer):
            raise TypeError(
                "Cannot apply JAX transformations to a function lowered and compiled for a "
                f"particular signature. Detected argument of {traced.fun_name} of type "
                f"{type(x).__name__}: {x}"
            )
    return leaves


def leaves_of(traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of a call's arguments as arrays, references and tracers.

    Raises:
      TypeError: they have another structure than those that were traced.
    """
    leaves, tree = tree_flatten((args, kwargs))
    if tree != traced.in_tree:
        raise TypeError(
            "Function compiled with input pytree does not match the input pytree it was "
            f"called with: {traced.fun_name} was compiled for arguments of structure "
            f"{traced.in_tree}, called with {tree}"
        )
    own = (ConcreteArray, Ref, Tracer)
    return [x if isinstance(x, own) else asarray_concrete(x) for x in leaves]


def leaf_names(traced: Any) -> list[str]:
    """What the function calls the leaves of its arguments."""
    closed = traced.jaxpr
    info = closed.jaxpr.debug_info
    names = [*map(str, (info and info.arg_names) or ())]
    places, _ = tree_flatten_with_path(traced.in_tree.unflatten(range(len(closed.in_avals))))
    return names + [_leaf_name(path) for path, _ in places[len(names) :]]


def _leaf_name(path: KeyPath) -> str:
    """What a leaf of `(args, kwargs)` is called where nothing tells names of parameters."""
    whose, argument, *rest = path
    by_name = isinstance(argument, DictKey) and whose == SequenceKey(1)
    name = str(argument.key) if by_name else f"args{keystr((argument,))}"
    return name + keystr(tuple(rest))


def check_types(traced: Any, arrays: Sequence[Any]) -> None:
    """Raise TypeError for arguments of other shapes or dtypes than those that were traced."""
    pairs = list(zip(arrays, traced.jaxpr.in_avals, strict=True))
    fits = [x.aval.shape == want.shape and x.aval.dtype == want.dtype for x, want in pairs]
    if not all(fits):
        wrong = [
            f"Argument '{name}' compiled with {want} and called with {x.aval}"
            for name, (x, want), fit in zip(leaf_names(traced), pairs, fits, strict=True)
            if not fit
        ]
        raise TypeError(
            "Argument types differ from the types for which this computation was compiled: "
            f"{traced.fun_name} was compiled for others. The mismatches are:\n" + "\n".join(wrong)
        )


@dataclass(frozen=True)
class MemoryStats:
    """Memory of a compiled program, in bytes: integers, or formulas in symbolic dimensions.

    Args:
      argument_size_in_bytes: of all arguments.
      output_size_in_bytes: of all results.
      alias_size_in_bytes: of results that take over the memory of donated arguments.
      temp_size_in_bytes: of what holds intermediates; None before calls tell how they are kept.
      constant_size_in_bytes: of arrays that the program captured.
      host_argument_size_in_bytes, host_output_size_in_bytes, host_temp_size_in_bytes: on a GPU, of
        what is in the memory of the host, which the others do not count.
    """

    argument_size_in_bytes: DimSize
    output_size_in_bytes: DimSize
    alias_size_in_bytes: DimSize
    temp_size_in_bytes: DimSize | None
    constant_size_in_bytes: DimSize
    host_argument_size_in_bytes: DimSize = 0
    host_output_size_in_bytes: DimSize = 0
    host_temp_size_in_bytes: DimSize = 0
