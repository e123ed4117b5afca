"""Sizes and values of a model's inputs, as flags say them."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amdjax.core.errors import did_you_mean
from amdjax.driver.errors import BadUsage
from amdjax.driver.reading import Subject

Shape = tuple[int | str, ...]


def shapes(subject: Subject, options: argparse.Namespace) -> dict[str, Shape]:
    """Shapes of the inputs; dimensions that flags leave open have names.

    What neither the file nor a flag says is 1, as in MIGraphX.

    Raises:
      BadUsage: a flag names no input or dimension, or contradicts the file.
    """
    given = _by_input(subject, options.input_dim, "--input-dim", _size)
    given |= _by_input(subject, options.dyn_input_dim, "--dyn-input-dim", _open_size)
    dims = _dims(subject, options.dim_param)
    return {
        v.name: _shape(v, given.get(v.name), dims, options.batch)
        for v in subject.inputs
        if getattr(v, "kind", "tensor") == "tensor"
    }


def _shape(value: Any, given: Shape | None, dims: Mapping[str, int], batch: int | None) -> Shape:
    if value.shape is None:
        if given is None:
            raise BadUsage(
                f"input {value.name!r}: the file says nothing of its shape; give it: "
                f"--input-dim @{value.name} 1 3 224 224"
            )
        return given
    if given is not None:
        if len(given) != len(value.shape):
            raise BadUsage(f"input {value} has {len(value.shape)} axes, but is given {given}")
        for axis, (said, wanted) in enumerate(zip(value.shape, given)):
            if isinstance(said, int) and wanted != said:
                raise BadUsage(f"input {value}: axis {axis} has {said} elements, not {wanted}")
        return given
    found: list[int | str] = []
    for axis, said in enumerate(value.shape):
        if isinstance(said, int):
            if axis == 0 and batch not in (None, said) and said != 1:
                raise BadUsage(f"--batch: input {value} is fixed to {said}")
            if axis == 0 and batch not in (None, said):
                raise BadUsage(
                    f"--batch: input {value} is fixed to 1; export the model with an open axis"
                )
            found.append(said)
        elif said in dims:
            found.append(dims[said])
        else:
            found.append(batch if axis == 0 and batch else 1)
    return tuple(found)


def _by_input(
    subject: Subject, groups: Iterable[Sequence[str]], flag: str, size: Any
) -> dict[str, Shape]:
    """For inputs `@name`, what follows."""
    found: dict[str, Shape] = {}
    for name, words in _named(groups, flag):
        _input(subject, name, flag)
        found[name] = tuple(size(word, flag) for word in words)
    return found


def _named(groups: Iterable[Sequence[str]], flag: str) -> list[tuple[str, list[str]]]:
    """Words by the `@name` before them."""
    found: list[tuple[str, list[str]]] = []
    for words in groups:
        for word in words:
            if word.startswith("@"):
                found.append((word[1:], []))
            elif not found:
                raise BadUsage(f"{flag} takes @NAME first, got {word!r}")
            else:
                found[-1][1].append(word)
    return found


def _input(subject: Subject, name: str, flag: str) -> Any:
    known = {v.name: v for v in subject.inputs}
    if name not in known:
        shown = ", ".join(map(str, subject.inputs))
        raise BadUsage(
            f"{flag}: there is no input {name!r}.{did_you_mean(name, known)} Inputs: {shown}"
        )
    return known[name]


def _size(word: str, flag: str) -> int:
    if not word.isascii() or not word.isdigit():
        raise BadUsage(f"{flag}: {word!r} is no size; FILE goes before this flag")
    return int(word)


def _open_size(word: str, flag: str) -> int | str:
    if word.isascii() and word.isdigit():
        return int(word)
    if not re.fullmatch(r"[A-Za-z_]\w*|([A-Za-z_]\w*:)?\d+\.\.\d+", word):
        raise BadUsage(f"{flag}: {word!r} is no size, name, or range such as 1..32 or b:1..32")
    return word


def _dims(subject: Subject, groups: Iterable[Sequence[str]]) -> dict[str, int]:
    known = {n for v in subject.inputs for n in v.shape or () if isinstance(n, str)}
    found: dict[str, int] = {}
    for name, words in _named(groups, "--dim-param"):
        if name not in known:
            shown = f" Dimensions: {', '.join(sorted(known)) or 'none have names'}"
            what = f"--dim-param: no input has a dimension {name!r}."
            raise BadUsage(f"{what}{did_you_mean(name, known)}{shown}")
        if len(words) != 1:
            raise BadUsage(f"--dim-param @{name} takes one size, got {len(words)}")
        found[name] = _size(words[0], "--dim-param")
    return found


def arguments(
    subject: Subject, options: argparse.Namespace, sizes: Mapping[str, Shape]
) -> dict[str, Any]:
    """Values of the inputs: from files, zeros, ones, else random.

    Raises:
      BadUsage: a flag names no input, or a file does not have its dtype and shape.
    """
    loaded = _loaded(subject, options.load_arg)
    fills = {}
    for flag, number in (("--fill0", 0), ("--fill1", 1)):
        for words in getattr(options, flag[2:]):
            for word in words:
                name = word.removeprefix("@")
                _input(subject, name, flag)
                fills[name] = number
    generator = np.random.default_rng(options.seed or 0)
    found: dict[str, Any] = {}
    for value in subject.inputs:
        name = value.name
        if name in loaded:
            found[name] = _fitting(value, loaded[name])
        elif name not in sizes or value.dtype is None or value.dtype == object:
            if "optional" not in getattr(value, "kind", ""):
                raise BadUsage(f"input {value}: nothing can be drawn for it; --load-arg gives it")
        else:
            shape = tuple(n if isinstance(n, int) else _examples(n)[0] for n in sizes[name])
            found[name] = _values(generator, shape, np.dtype(value.dtype), fills.get(name))
    return found


def samples(sizes: Mapping[str, Shape]) -> list[dict[str, Shape]]:
    """Shapes in place of open ones, for which there is calibration, tuning and machine code.

    The least, a middle and the greatest size of a range, of all open dimensions together; small
    ones of a dimension that has a name alone. The last ones are left out where inputs would be of
    more than `MOST` elements.
    """
    found: list[dict[str, Shape]] = []
    for place in range(3):
        at: dict[str, Shape] = {
            name: tuple(n if isinstance(n, int) else _examples(n)[place] for n in shape)
            for name, shape in sizes.items()
        }
        if at not in found and (
            not found or sum(math.prod(map(int, s)) for s in at.values()) <= MOST
        ):
            found.append(at)
    return found


#: Elements of the inputs of a sample.
MOST = 1 << 24


def _examples(size: str) -> tuple[int, int, int]:
    """Sizes for a dimension that is open, the least first."""
    least, dots, most = size.rpartition(":")[2].partition("..")
    if not dots:
        return 1, 2, 8
    low, high = max(int(least), 1), int(most)
    return low, min(max(math.isqrt(low * high), low), high), high


def _values(generator: Any, shape: tuple[int, ...], dtype: np.dtype, fill: int | None) -> Any:
    if fill is not None:
        return np.full(shape, fill, dtype)
    if dtype.kind in "biu" or dtype.name in ("int4", "uint4", "int2", "uint2"):
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "c":
        pair = generator.standard_normal((2, *shape))
        return (pair[0] + 1j * pair[1]).astype(dtype)
    return generator.standard_normal(shape, np.float32).astype(dtype)


def _loaded(subject: Subject, groups: Iterable[Sequence[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for words in groups:
        if len(words) == 1 and words[0].endswith(".npz"):
            arrays = load_arrays(words[0])
            for name in arrays:
                _input(subject, name, f"--load-arg {words[0]}")
            found |= arrays
            continue
        for name, files in _named([words], "--load-arg"):
            _input(subject, name, "--load-arg")
            if len(files) != 1:
                raise BadUsage(f"--load-arg @{name} takes one file, got {len(files)}")
            arrays = load_arrays(files[0])
            if name not in arrays and len(arrays) != 1:
                raise BadUsage(f"--load-arg @{name}: {files[0]} has {', '.join(arrays)}")
            found[name] = arrays[name] if name in arrays else next(iter(arrays.values()))
    return found


def load_arrays(path: str | Path) -> dict[str, Any]:
    """The arrays of an .npy, under the name "", or .npz.

    Raises:
      BadUsage: there is no such file, or it has no arrays.
    """
    try:
        read = np.load(path, allow_pickle=False)
        return {"": read} if isinstance(read, np.ndarray) else {k: read[k] for k in read.files}
    except FileNotFoundError:
        raise BadUsage(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError, EOFError) as e:
        raise BadUsage(f"{path} holds no arrays of NumPy: {e}") from e
    except Exception as e:  # of a zip file that is damaged: many kinds
        raise BadUsage(f"{path} is damaged: {e}") from e


def _fitting(value: Any, array: Any) -> Any:
    """An array that has the dtype and shape that the file says."""
    wanted = value.dtype
    if wanted is not None and array.dtype != wanted:
        if array.dtype.kind == "V" and array.dtype.itemsize == np.dtype(wanted).itemsize:
            array = array.view(wanted)  # dtypes that NumPy's files do not know
        else:
            raise BadUsage(f"input {value} must be {wanted}, but the file has {array.dtype}")
    if value.shape is not None:
        fits = len(value.shape) == array.ndim and all(
            not isinstance(said, int) or said == n for said, n in zip(value.shape, array.shape)
        )
        if not fits:
            raise BadUsage(f"input {value}: the file has shape {list(array.shape)}")
    return array
