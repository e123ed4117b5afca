"""Models as flags want them computed: as the file says, or quantized."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amdjax.core.pytree import tree_unflatten
from amdjax.driver.errors import BadUsage
from amdjax.driver.inputs import Shape, arguments, load_arrays, samples, shapes
from amdjax.driver.reading import Subject
from amdjax.export.model import FileModel
from amdjax.tree_util import keystr, tree_flatten_with_path

#: What flags mean to `amdjax.quantize`.
MODES: dict[str, dict[str, Any]] = {
    "fp16": {"dtype": "float16"},
    "bf16": {"dtype": "bfloat16"},
    "fp8": {"dtype": "float8_e4m3fn"},
    "int8": {"dtype": "int8"},
    "int4_weights": {"dtype": "int4", "mode": "weights"},
}
BATCHES = 4  # of random inputs


@dataclass(frozen=True)
class Runnable:
    """A model to be run.

    Args:
      model: of inputs by name the outputs by name, compiled; has `lower` and `save`.
      quantized: what `amdjax.quantize` made; None where the model is as its file says.
      precision: the flag.
    """

    model: Any
    quantized: Any = None
    precision: str = ""

    @property
    def call(self) -> Callable[..., Any]:
        """The outputs by name, of inputs by name."""
        return self.model

    @property
    def lower(self) -> Callable[..., tuple[Any, tuple[Any, ...]]]:
        """Of inputs by name the program, ready to compile, and the arguments before them."""
        return self.model.lower


class QuantizedModel(FileModel):
    """A model with products in few bits, as it is called, lowered and saved.

    Args:
      subject: the model that was quantized.
      made: what `amdjax.quantize` made of it.
    """

    whose = "the quantized model"

    def __init__(self, subject: Subject, made: Any) -> None:
        found, self._tree = tree_flatten_with_path(made.params)
        self._names = [keystr(path, simple=True, separator="/") for path, _ in found]
        self._made = made
        params = {name: np.asarray(x) for name, (_, x) in zip(self._names, found)}
        metadata = dict(subject.model.metadata)
        super().__init__(params, subject.inputs, subject.outputs, metadata, ())

    def _computed(self, params: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        tree = tree_unflatten(self._tree, [params[name] for name in self._names])
        return self._made(tree, **given)


def chosen(options: argparse.Namespace, usual: str = "") -> str:
    """The flag that says how products are computed; `usual` for none."""
    found = [name for name in MODES if getattr(options, name)]
    if len(found) > 1:
        flags = " and ".join("--" + name.replace("_", "-") for name in found)
        raise BadUsage(f"{flags} exclude each other")
    name = found[0] if found else usual
    if options.calibrate and name not in ("int8", "fp8"):
        raise BadUsage("--calibrate is for --int8 and --fp8, whose scales it gives")
    return name


def runnable(subject: Subject, options: argparse.Namespace) -> Runnable:
    """The model as flags want it computed."""
    name = chosen(options)
    if not name:
        return Runnable(subject.model)
    return quantized(subject, options, name)


def quantized(
    subject: Subject, options: argparse.Namespace, name: str, **settings: Any
) -> Runnable:
    """The model with its products in few bits."""
    # late: loads where it is asked for
    from amdjax import quantize

    if subject.kind == "amdjax":
        raise BadUsage(f"{subject.path} is compiled already; quantize the model that it came from")
    data = list(calibration(subject, options))
    how = {**MODES[name], **settings}
    function = lambda params, **inputs: subject.function(params, **inputs)
    made = quantize.quantize(function, dict(subject.params), data, progress=False, **how)
    model = QuantizedModel(subject, made)
    return Runnable(model, made, name)


def calibration(subject: Subject, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Inputs by name that scales are taken from."""
    where = options.calibrate or "random"
    if where == "random":
        at = samples(shapes(subject, options))
        for n in range(BATCHES):
            options_of = argparse.Namespace(**{**vars(options), "seed": (options.seed or 0) + n})
            yield arguments(subject, options_of, at[n % len(at)])
        return
    path = Path(where)
    files = sorted(path.glob("*.np[yz]")) if path.is_dir() else [path]
    if not files:
        raise BadUsage(f"--calibrate: {where} has no .npy or .npz files")
    for file in files:
        yield _named(subject, load_arrays(file), file)


def _named(subject: Subject, arrays: Mapping[str, Any], file: Path) -> dict[str, Any]:
    names = [v.name for v in subject.inputs]
    if len(names) == 1 and len(arrays) == 1:
        arrays = {names[0]: next(iter(arrays.values()))}
    if missing := [n for n in names if n not in arrays]:
        raise BadUsage(f"--calibrate: {file} has no input {missing[0]!r}, but {', '.join(arrays)}")
    return {n: arrays[n] for n in names}


def batch_of(subject: Subject, given: Mapping[str, Any]) -> int:
    """How many examples inputs are: the first axis where the file leaves it open, else 1."""
    for value in subject.inputs:
        if value.shape and not isinstance(value.shape[0], int) and value.name in given:
            return int(np.shape(given[value.name])[0])
    return 1


def with_batch(subject: Subject, sizes: Mapping[str, Shape], batch: int) -> dict[str, Shape]:
    """The sizes with another first axis where the file leaves it open."""
    open_ones = {v.name for v in subject.inputs if v.shape and not isinstance(v.shape[0], int)}
    if not open_ones:
        raise BadUsage(f"{subject.path}: no input has an open first axis to choose a batch for")
    return {n: (batch, *s[1:]) if n in open_ones else s for n, s in sizes.items()}
