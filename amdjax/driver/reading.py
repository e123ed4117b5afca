"""From a file to a model, of any kind."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amdjax.core.errors import did_you_mean
from amdjax.driver.errors import BadUsage


@dataclass(frozen=True)
class Subject:
    """A model that was read.

    Args:
      path: its file.
      kind: `"onnx"`, `"tf"` or `"amdjax"`.
      model: what the reader made of it.
      function: of params and inputs by name, the outputs by name.
    """

    path: Path
    kind: str
    model: Any
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """What it is called where there is little room."""
        return self.path.name

    @property
    def params(self) -> Mapping[str, Any]:
        """Its weights by name."""
        return self.model.params

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What is said of its inputs: `name`, `dtype` and `shape`."""
        return tuple(self.model.inputs)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The same of its outputs."""
        return tuple(self.model.outputs)


KINDS = {".onnx": "onnx", ".pb": "tf", ".pbtxt": "tf", ".amdjax": "amdjax"}


def read_model(options: argparse.Namespace) -> Subject:
    """The model of the file that was named.

    Raises:
      BadUsage: there is no such file, or it is no such model; the message says what is wrong.
    """
    path = Path(options.file)
    kind = _kind(path, options)
    try:
        if kind == "onnx":
            return _onnx(path)
        if kind == "tf":
            return _tf(path, options)
        return _artifact(path, options)
    except (ValueError, TypeError, OSError, NotImplementedError) as e:
        said = str(e)
        raise BadUsage(said if path.name in said else f"{path}: {said}") from e
    except ImportError as e:
        package = {"onnx": "amdjax[onnx]", "tf": "amdjax[tf]"}.get(kind)
        if package is None:
            raise
        raise BadUsage(f"{path}: {e}; pip install '{package}' brings what reads it") from e


def _kind(path: Path, options: argparse.Namespace) -> str:
    if not path.exists():
        folder = path.parent if path.parent.is_dir() else Path()
        hint = did_you_mean(path.name, os.listdir(folder))
        raise BadUsage(f"there is no file {str(path)!r}.{hint}".rstrip("."))
    if options.onnx and options.tf:
        raise BadUsage("--onnx and --tf exclude each other")
    if options.onnx or options.tf:
        return "onnx" if options.onnx else "tf"
    if path.is_dir():
        if (path / "saved_model.pb").is_file() or (path / "saved_model.pbtxt").is_file():
            return "tf"
        raise BadUsage(f"{path} is a folder without saved_model.pb; name a model's file")
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(KINDS)
        raise BadUsage(f"{path}: nothing tells what it is, no {known}; say --onnx or --tf")
    return kind


def _onnx(path: Path) -> Subject:
    # late: loads with the first model
    from amdjax import onnx

    model = onnx.load(path)
    return Subject(path, "onnx", model, model.function)


def _tf(path: Path, options: argparse.Namespace) -> Subject:
    # late: loads with the first model
    from amdjax import tf

    if options.nhwc and options.nchw:
        raise BadUsage("--nhwc and --nchw exclude each other")
    layout = "NHWC" if options.nhwc else "NCHW" if options.nchw else None
    model = tf.load(path, outputs=options.output_names, layout=layout)
    return Subject(path, "tf", model, model.function)


def _artifact(path: Path, options: argparse.Namespace) -> Subject:
    # late: loads with the first model
    from amdjax.export import load_artifact

    model = load_artifact(path, trust=options.trust)
    if model.manifest["interface"] is None:
        raise BadUsage(f"{path} holds a function, not a model: load_artifact calls it from Python")
    return Subject(path, "amdjax", model, model.function)
