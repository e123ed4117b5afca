"""Between calls with pytrees and calls with leaves, in the forms that libraries use."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.config import config
from amdjax.core.jaxpr import DebugInfo
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_unflatten
from amdjax.core.pytree_errors import flatten_axes
from amdjax.extend.linear_util import (
    WrappedFun,
    transformation2,
    transformation_with_aux2,
)
from amdjax.transforms.flat import (
    debug_info as _debug_info,
    join_args,
    shaped as shaped_abstractify,
)

__all__ = [
    "argnums_partial", "debug_info", "donation_vector", "flatten_axes", "flatten_fun",
    "flatten_fun_nokwargs", "rebase_donate_argnums", "safe_map", "safe_zip", "shaped_abstractify",
    "unzip2", "weakref_lru_cache",
]  # fmt: skip


def safe_map(f: Callable[..., Any] | None = None, *args: Any) -> list[Any]:
    """`map` over sequences of one length, as a list.

    Args:
      f: the function.
      args: the sequences.

    Returns:
      A list.

    Raises:
      TypeError: there is no sequence.
      ValueError: lengths differ.

        >>> safe_map(max, [1, 5], [2, 3])
        [2, 5]
    """
    if f is None or not args:
        raise TypeError("safe_map requires at least 2 arguments, a function and a sequence")
    try:
        rows = list(zip(*args, strict=True))
    except ValueError as e:
        raise ValueError(str(e).replace("zip()", "safe_map()")) from None
    return [f(*row) for row in rows]


def safe_zip(*args: Any) -> list[tuple[Any, ...]]:
    """`zip` of sequences of one length, as a list.

    Args:
      args: the sequences.

    Returns:
      A list of tuples.

    Raises:
      TypeError: there is no sequence.
      ValueError: lengths differ.

        >>> safe_zip([1, 2], "ab")
        [(1, 'a'), (2, 'b')]
    """
    if not args:
        raise TypeError("safe_zip requires at least 1 argument")
    # One without an end is read as far as it takes to say that it is longer.
    sized = [len(a) for a in args if hasattr(a, "__len__")]
    limit = min(sized) + 11 if sized else None
    sequences = [list(itertools.islice(a, limit)) for a in args]
    lengths = [len(a) for a in sequences]
    if len(set(lengths)) == 1:
        return list(zip(*sequences))
    i = next(i for i, n in enumerate(lengths) if n != lengths[0])
    texts = [f"{n}{'+' * (n == limit)}" for n in lengths]
    capped = ", ".join(str(k) for k, n in enumerate(lengths) if n == limit)
    raise ValueError(
        f"safe_zip() argument {i} has length {texts[i]} but argument 0 has length {texts[0]}. "
        f"All lengths: ({', '.join(texts)})"
        + (f". Note: length capped for argument(s) {capped}" if capped else "")
    )


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second parts of pairs, of which there may be none.

    Args:
      pairs: the pairs.

    Returns:
      Two tuples.

        >>> unzip2([(1, "a"), (2, "b")])
        ((1, 2), ('a', 'b'))
    """
    listed = list(pairs)
    return tuple(a for a, _ in listed), tuple(b for _, b in listed)


def weakref_lru_cache(
    f: Callable[..., Any] | None = None, *, maxsize: int | None = 2048, **_: Any
) -> Any:
    """A function that remembers results for as long as its first argument lives.

    Args:
      f: a function of a first argument, which can be referred to weakly, and hashable others;
        without it, a decorator is returned.
      maxsize: how many results are kept for one first argument; those last used longest ago go.

    Returns:
      The function, with `cache_clear`. What traces depend on is part of the key.

        >>> class Model: ...
        >>> calls = []
        >>> @weakref_lru_cache
        ... def compiled(model, n):
        ...     calls.append(n)
        ...     return n + 1
        >>> model = Model()
        >>> compiled(model, 1), compiled(model, 1), calls
        (2, 2, [1])
    """
    if f is None:
        return functools.partial(weakref_lru_cache, maxsize=maxsize)
    caches: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @functools.wraps(f)
    def remembered(first: Any, *args: Any, **kwargs: Any) -> Any:
        cache = caches.get(first)
        if cache is None:
            alive = weakref.ref(first)
            cache = functools.lru_cache(maxsize)(lambda _, *a, **k: f(alive(), *a, **k))
            caches[first] = cache
        return cache(config.trace_key(), *args, **kwargs)

    remembered.cache_clear = caches.clear  # type: ignore[attr-defined]
    return remembered


def _call(f: Callable[..., Any], store: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    leaves, tree = tree_flatten(f(*args, **kwargs))
    store.store(tree)
    return leaves


@transformation_with_aux2
def flatten_fun(f: Callable[..., Any], store: Any, in_tree: PyTreeDef, *leaves: Any) -> list[Any]:
    """`(fun, tree of (args, kwargs)) -> (fun on leaves, function that gets the result's tree)`."""
    args, kwargs = tree_unflatten(in_tree, leaves)
    return _call(f, store, args, kwargs)


@transformation_with_aux2
def flatten_fun_nokwargs(
    f: Callable[..., Any], store: Any, in_tree: PyTreeDef, *leaves: Any
) -> list[Any]:
    """`(fun, tree of args) -> (fun on leaves, function that gets the result's tree)`."""
    return _call(f, store, tree_unflatten(in_tree, leaves), {})


@transformation2
def _with_static(f: Callable[..., Any], nums: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
    return f(*join_args(nums, values, args), **kwargs)


def argnums_partial(
    f: WrappedFun,
    dyn_argnums: int | Sequence[int],
    args: Sequence[Any],
    require_static_args_hashable: bool = True,
) -> tuple[WrappedFun, tuple[Any, ...]]:
    """`f` with all arguments fixed but those at some positions, and these arguments.

    Args:
      f: the function.
      dyn_argnums: positions of the arguments that stay.
      args: all arguments.
      require_static_args_hashable: whether the fixed ones must be hashable.

    Raises:
      ValueError: one is not.
    """
    nums = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    kept = {n % len(args) for n in nums}
    static = [i for i in range(len(args)) if i not in kept]
    if require_static_args_hashable:
        for i in static:
            try:
                hash(args[i])
            except TypeError:
                raise ValueError(
                    f"static argument {i} of {f.__name__}, of type {type(args[i]).__name__}, "
                    "cannot be hashed"
                ) from None
    fixed = tuple(args[i] for i in static)
    return _with_static(f, tuple(static), fixed), tuple(args[i] for i in sorted(kept))


def donation_vector(
    donate_argnums: Sequence[int],
    donate_argnames: Sequence[str],
    in_tree: PyTreeDef,
    kws: bool = True,
) -> tuple[bool, ...]:
    """Which leaves of the arguments are donated.

    Args:
      donate_argnums: positions of donated arguments.
      donate_argnames: names of donated keyword arguments.
      in_tree: the structure of `(args, kwargs)`, or of `args`.
      kws: whether `in_tree` has `kwargs`.
    """
    marks = tree_unflatten(in_tree, [False] * in_tree.num_leaves)
    args, kwargs = marks if kws else (marks, {})
    flags: list[bool] = []
    for i, arg in enumerate(args):
        flags += [i in donate_argnums] * len(tree_flatten(arg)[0])
    for name in sorted(kwargs):
        flags += [name in donate_argnames] * len(tree_flatten(kwargs[name])[0])
    return tuple(flags)


def rebase_donate_argnums(
    donate_argnums: Sequence[int], static_argnums: Sequence[int]
) -> tuple[int, ...]:
    """Donated positions, counted among the arguments that are not static.

    Raises:
      ValueError: an argument is both.

        >>> rebase_donate_argnums((3, 4), (0, 1))
        (1, 2)
    """
    if both := set(donate_argnums) & set(static_argnums):
        raise ValueError(f"static_argnums and donate_argnums cannot intersect, both have {both}")
    return tuple(i - sum(s < i for s in set(static_argnums)) for i in sorted(set(donate_argnums)))


def debug_info(
    traced_for: str, fun: Callable[..., Any], args: Any, kwargs: dict[str, Any], **options: Any
) -> DebugInfo:
    """What error messages shall say about a traced function.

    Args:
      traced_for: by what it is traced, such as "jit".
      fun: the function.
      args: its positional arguments, for their names.
      kwargs: its keyword arguments.
      **options: accepted.
    """
    return _debug_info(traced_for, fun, args, kwargs)


_public_surface(globals())
