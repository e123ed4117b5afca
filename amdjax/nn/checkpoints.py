"""Trees of arrays in files, as safetensors: written whole or not at all, and checked when read."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.files import replaced
from amdjax.core.pytree import keystr, tree_flatten_with_path, tree_unflatten
from amdjax.nn import _random as random
from amdjax.numpy._util import dtype_of

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["CheckpointError", "Saving", "load", "save"]

T = TypeVar("T")

_METADATA = "amdjax"
_VERSION = 1
_SHOWN = 8  # differences that an error lists
#: What safetensors' NumPy interface reads; the bits of others are stored as integers.
_NATIVE = frozenset((
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "complex64"),
))  # fmt: skip
_PYTHON: dict[str, Any] = {t.__name__: t for t in (bool, int, float, complex)}


class CheckpointError(ValueError):
    """A file that is damaged, is no checkpoint, or holds another tree than the one asked for.

    Args:
      message: what is wrong with it.

        >>> issubclass(nn.CheckpointError, ValueError)
        True
    """


class Saving:
    """A file that is being written, by `save`.

    Args:
      future: of the writing; None where it is done.
    """

    def __init__(self, path: Path, future: Future[None] | None = None) -> None:
        self.path, self._future = path, future

    def wait(self, timeout: float | None = None) -> None:
        """Return when the file is there.

        Args:
          timeout: seconds to wait at most; None means any time.

        Raises:
          OSError: it could not be written.
          TimeoutError: it took longer.
        """
        if self._future is not None:
            self._future.result(timeout)

    @property
    def done(self) -> bool:
        """Whether the writing has ended, well or not."""
        return self._future is None or self._future.done()

    def __repr__(self) -> str:
        return f"Saving({str(self.path)!r}, {'done' if self.done else 'under way'})"


class _Leaf(NamedTuple):
    """What a checkpoint says of a leaf; `value` of Python's numbers, `crc32` of arrays."""

    kind: str  # "array", "key" or the name of a Python type
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: Any = None
    crc32: int = 0

    def __str__(self) -> str:
        if self.kind in _PYTHON:
            return f"a Python {self.kind}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def form(self) -> tuple[Any, ...]:
        """What must agree between a file and what is asked for."""
        return self.kind, self.dtype, self.shape


def _leaf(path: str, x: Any, name: str) -> _Leaf:
    """The form of a leaf.

    Raises:
      TypeError: it is neither an array, a key nor a number.
    """
    if type(x) in _PYTHON.values():
        return _Leaf(type(x).__name__)
    if not (hasattr(x, "dtype") and hasattr(x, "shape")):
        raise TypeError(
            f"{name}: {path} must be an array or a number, got {x!r}. What is no data belongs to a "
            "static field."
        )
    kind = "key" if dtypes.issubdtype(x.dtype, dtypes.prng_key) else "array"
    dtype = x.dtype.newbyteorder("=") if isinstance(x, (np.ndarray, np.generic)) else x.dtype
    return _Leaf(kind, str(dtype), tuple(x.shape))


def _leaves(tree: Any, name: str) -> tuple[dict[str, Any], dict[str, _Leaf], Any]:
    """The leaves of a tree and their forms by path, and its structure."""
    pairs, structure = tree_flatten_with_path(tree)
    values = {keystr(path): x for path, x in pairs}
    if len(values) != len(pairs):
        raise ValueError(f"{name}: two leaves of the tree have the same path.")
    return values, {path: _leaf(path, x, name) for path, x in values.items()}, structure


def save(path: str | os.PathLike[str], tree: Any, *, asynchronous: bool = False) -> Saving:
    """Write a tree of arrays to a file.

    The file is in the safetensors format: arrays under their paths in the tree, and beside them the
    tree's form as JSON. It is written aside and renamed: whatever happens meanwhile, `path` is the
    old file or the new one.

    Args:
      path: the file, mostly "*.safetensors".
      tree: a network, an optimizer's state, or another pytree of arrays, keys and Python numbers.
      asynchronous: whether to write in another thread. Arrays are copied first, so that they may be
        donated meanwhile.

    Returns:
      A `Saving`, for whose end `wait` waits.

    Raises:
      TypeError: a leaf is neither an array, a key nor a number.
      ValueError: two leaves have the same path.
      OSError: the file cannot be written; with `asynchronous`, `wait` raises it.

        >>> import tempfile
        >>> layer = nn.Dense(2, 3, key=amdjax.random.key(0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = nn.save(folder + "/layer.safetensors", layer)
        ...     again = nn.load(folder + "/layer.safetensors", like=layer)
        >>> bool((again.kernel == layer.kernel).all())
        True
    """
    path = Path(path)
    values, forms, _ = _leaves(tree, "save")
    arrays = {
        where: _stored(values[where], form, asynchronous)
        for where, form in forms.items()
        if form.kind not in _PYTHON
    }
    for where, form in forms.items():
        if form.kind in _PYTHON:
            value = values[where]
            parts = [value.real, value.imag] if form.kind == "complex" else value
            forms[where] = form._replace(value=parts)
    if asynchronous:
        writing = _executor().submit(_write, path, arrays, forms)
        writing.add_done_callback(_log_failure)
        return Saving(path, writing)
    _write(path, arrays, forms)
    return Saving(path)


_executors: list[ThreadPoolExecutor] = []


def _executor() -> ThreadPoolExecutor:
    """One thread, so that files are written in the order in which they were saved."""
    # late: only those who save in another thread need it
    from concurrent.futures import ThreadPoolExecutor

    if not _executors:
        _executors.append(ThreadPoolExecutor(1, "amdjax-checkpoint"))
    return _executors[0]


def _log_failure(writing: Future[None]) -> None:
    """What goes wrong in the other thread is heard of even without `wait`."""
    # late: it takes long to load
    import logging

    if error := writing.exception():
        logging.getLogger("amdjax.nn").error("save: %s", error)


def _stored(x: Any, form: _Leaf, copy: bool) -> np.ndarray:
    """An array as it is stored: words of keys, bits of dtypes that safetensors lacks."""
    array = np.asarray(random.key_data(x) if form.kind == "key" else x)
    array = np.array(array, array.dtype.newbyteorder("="), order="C", copy=copy or None)
    if array.dtype.name in _NATIVE:
        return array
    bits = _bits(array.dtype)
    return (
        array.reshape(*array.shape, 1).view(bits) if array.dtype.kind == "c" else array.view(bits)
    )


def _bits(dtype: np.dtype) -> np.dtype:
    """The dtype as which one that safetensors lacks is stored; complex numbers as pairs."""
    return np.dtype(np.float64 if dtype.kind == "c" else f"uint{8 * dtype.itemsize}")


def _write(path: Path, arrays: dict[str, np.ndarray], forms: dict[str, _Leaf]) -> None:
    # late: only those who save need it
    from safetensors.numpy import save_file

    leaves = {
        where: form._replace(crc32=_crc32(arrays[where])) if where in arrays else form
        for where, form in forms.items()
    }
    # A checkpoint of several files would say here which part of them it is.
    described = {
        "version": _VERSION,
        "part": [0, 1],
        "leaves": {where: leaf._asdict() for where, leaf in leaves.items()},
    }
    try:
        with replaced(path) as aside:
            save_file(arrays, aside, metadata={_METADATA: json.dumps(described)})
    except BaseException as error:
        if type(error).__name__ == "SafetensorError":  # which is no OSError
            raise OSError(f"save: {path} cannot be written: {error}") from error
        raise


def _crc32(array: np.ndarray) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)


def load(path: str | os.PathLike[str], like: T) -> T:
    """Read a tree of arrays that `save` wrote.

    Args:
      like: a tree of the form that is expected: the same paths, shapes and dtypes; arrays or, in
        their place, `ShapeDtypeStruct`s. What is no data, such as a network's functions, comes from
        here.

    Returns:
      A tree of the form of `like`. Arrays are NumPy's where those of `like` are.

    Raises:
      FileNotFoundError: there is no such file.
      CheckpointError: the file is damaged, no checkpoint, or one of another tree; the message names
        the leaves that differ.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = nn.save(folder + "/x.safetensors", {"x": jnp.arange(3), "step": 7})
        ...     nn.load(folder + "/x.safetensors", like={"x": jnp.zeros(3, int), "step": 0})
        {'step': 7, 'x': Array([0, 1, 2], dtype=int32)}
    """
    path = Path(path)
    values, wanted, structure = _leaves(like, "load")
    with _opened(path) as file:
        found = _described(path, file.metadata())
        _compare(path, found, wanted)
        arrays = [where for where, leaf in found.items() if leaf.kind not in _PYTHON]
        if missing := set(arrays).difference(file.keys()):
            raise CheckpointError(f"load: {path} is damaged: it lacks {min(missing)}.")
        stored = {where: _read(path, file, where, found[where]) for where in arrays}
    leaves = [  # `pop`: what is on the device is not needed here too
        _restored(path, where, stored.pop(where, None), found[where], values[where])
        for where in wanted
    ]
    return tree_unflatten(structure, leaves)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    # late: only those who load need it
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"load: there is no file {path}.")
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(
            f"load: {path} is damaged or no safetensors file: {error}."
        ) from error


def _described(path: Path, metadata: dict[str, str] | None) -> dict[str, _Leaf]:
    """What a file says of its leaves."""
    text = (metadata or {}).get(_METADATA)
    if text is None:
        raise CheckpointError(
            f"load: {path} has no form of a tree in it: nn.save did not write it. nn.from_torch "
            "takes the arrays of other files."
        )
    try:
        described = json.loads(text)
        version, part = described["version"], described["part"]
        leaves = {
            where: _Leaf(**{**leaf, "shape": tuple(leaf["shape"])})
            for where, leaf in described["leaves"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"load: {path} is damaged: its form of a tree is {text!r}."
        ) from error
    if version != _VERSION or part != [0, 1]:
        raise CheckpointError(
            f"load: {path} is of version {version}, part {part}; this amdjax reads single files of "
            f"version {_VERSION}."
        )
    return leaves


def _compare(path: Path, found: dict[str, _Leaf], wanted: dict[str, _Leaf]) -> None:
    wrong = [
        f"{where or '(the tree itself)'}: {_said(found, where)} in the file, "
        f"{_said(wanted, where)} in like"
        for where in {**wanted, **found}
        if where not in found or where not in wanted or found[where].form != wanted[where].form
    ]
    if wrong:
        more = f"\n  and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        lines = "\n  ".join(wrong[:_SHOWN])
        raise CheckpointError(f"load: {path} holds another tree:\n  {lines}{more}")


def _said(leaves: dict[str, _Leaf], where: str) -> str:
    return str(leaves[where]) if where in leaves else "nothing"


def _read(path: Path, file: Any, where: str, leaf: _Leaf) -> np.ndarray:
    """An array of a file, checked."""
    array = file.get_tensor(where)
    if leaf.kind == "array" and leaf.dtype not in _NATIVE:
        array = array.view(np.dtype(leaf.dtype)).reshape(leaf.shape)
    as_said = leaf.kind == "key" or (array.dtype.name, array.shape) == (leaf.dtype, leaf.shape)
    if not as_said or _crc32(array) != leaf.crc32:
        raise CheckpointError(f"load: {path} is damaged: {where} is not what was written.")
    return array


def _restored(path: Path, where: str, array: Any, leaf: _Leaf, like: Any) -> Any:
    if leaf.kind in _PYTHON:
        value = complex(*leaf.value) if leaf.kind == "complex" else leaf.value
        return _PYTHON[leaf.kind](value)
    if leaf.kind == "key":
        return random.wrap_key_data(jnp.asarray(array), dtype=like.dtype)
    if isinstance(like, (np.ndarray, np.generic)):
        return array
    out = jnp.asarray(array)
    if dtype_of(out) != array.dtype:
        raise CheckpointError(
            f"load: {path} holds {where or 'the array'} as {leaf}, which needs enable_x64."
        )
    return out
