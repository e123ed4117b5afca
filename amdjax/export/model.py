"""What models that come from files have in common: their inputs are checked, calls are compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

import amdjax

from .container import write_file
from .file_map import files_of
from .parts import parts
from .prepared import Prepared
from .program import Exported
from .values import Value, as_array, bound

__all__ = ["FileModel"]


class FileModel:
    """A pure function of parameters and named inputs.

    Args:
      params: arrays by name.
      inputs, outputs: what is said of them.
      metadata: what its makers say of it.
      optional: names of inputs that may be left out.

    Classes under it say how it is computed (`_computed`), and how arrays become those that one
    computes with (`_to_device`).

    Attributes:
      error: the class of the errors about inputs and parameters.
      whose: what these call the model.
      names_are_equal: whether dimensions of one name are of one size.
    """

    error: ClassVar[type[ValueError]] = ValueError
    whose: ClassVar[str] = "the model"
    names_are_equal: ClassVar[bool] = True

    def __init__(
        self, params: Mapping[str, Any], inputs: Sequence[Value], outputs: Sequence[Value],
        metadata: Mapping[str, Any], optional: Collection[str],
    ) -> None:  # fmt: skip
        self.params = dict(params)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.metadata = dict(metadata)
        self._optional = frozenset(optional)
        self._files = files_of(self.params.values())
        self._prepared = Prepared(self.function, self._to_device)

    def function(self, params: Mapping[str, Any], *args: Any, **inputs: Any) -> dict[str, Any]:
        """The model as a pure function, to be transformed by `jit`, `grad`, `vmap` and others.

        Args:
          params: arrays by name, as in `self.params`.
          args, inputs: the inputs, in their order or by name.

        Returns:
          The outputs by name. Types of 64 bits become those of 32 where `jax_enable_x64` is off.

        Raises:
          ValueError: an input is missing, unknown or of another dtype or shape, or a node fails, of
            the class that the module of the model names.
        """
        given = self._bound(args, inputs)
        if missing := [name for name in self.params if name not in params]:
            raise self.error(f"params lacks {missing[0]!r}; start from model.params")
        return self._computed(params, given)

    def __call__(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        """The outputs by name, of inputs in their order or by name."""
        given = self._bound(args, inputs)
        self._check_files()
        with amdjax.enable_x64(True):
            made = self._run(given)
        return {v.name: made[v.name] for v in self.outputs}

    def _check_files(self) -> None:
        for file in self._files:
            if file.is_changed():
                raise self.error(
                    f"{file.path} was written over since it was loaded, and its weights with it; "
                    "load it again, and replace files by renaming others"
                )

    def lower(self, *args: Any, **inputs: Any) -> tuple[Any, tuple[Any, ...]]:
        """What a call of such inputs runs.

        Args:
          args, inputs: the inputs, in their order or by name.

        Returns:
          The program, ready to compile, and the arrays that are its arguments before the inputs,
          which are given by name.

        Raises:
          ValueError: an input does not fit; a node cannot be traced.
        """
        given = self._bound(args, inputs)
        with amdjax.enable_x64(True):
            return self._prepared.lower(self.params, given)

    def save(
        self, path: Any, *, targets: Sequence[str] = ("cpu",), example: Any = None, key: Any = None,
        calibration: Mapping[str, Any] | None = None, constraints: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Write the model to a file, with machine code, which `amdjax.load_artifact` reads.

        Dimensions that are symbolic stay so: one file serves all sizes.

        Args:
          path: the file, mostly `*.amdjax`. It is written beside it and renamed.
          targets: what machine code is made for: "cpu" for this computer, names of GPUs that need
            not be there.
          example: inputs by name, whose sizes machine code is made for, or several such; usual
            small sizes if there is none.
          key: None, or a name and bytes, by which the file is signed (HMAC-SHA256).
          calibration: more that the manifest says, in JSON.
          constraints: what holds of symbolic dimensions, as "length <= 512": a graph that cuts
            its tables at a length serves no others.

        Raises:
          ValueError: an input is no tensor, or nothing is said of its shape; what is computed
            depends on values of inputs, or cannot be for all sizes; there is no such target.
        """
        # late: only what is saved needs it
        from .saving import exported_model, interface, sizes_in

        several = [example or {}] if example is None or isinstance(example, Mapping) else example
        examples = [dict(x) for x in several]
        try:
            trace = functools.partial(exported_model, constraints=constraints)
            exported = self._exported_for(trace, examples[0])
            sizes = [sizes_in(exported, x) for x in examples] if examples[0] else None
        except ValueError as e:
            raise e if isinstance(e, self.error) else self.error(str(e)) from None
        said = {
            "interface": interface(self, exported), "calibration": calibration,
            "metadata": {str(k): str(v) for k, v in self.metadata.items()},
        }  # fmt: skip
        params = {name: np.asarray(value) for name, value in self.params.items()}
        made = parts(exported, said, params, targets=targets, example=sizes)
        write_file(path, *made, key=key)

    def _exported_for(self, trace: Callable[..., Exported], example: Any) -> Exported:
        """The program of the model, which `trace(self, example)` makes."""
        return trace(self, example)

    @staticmethod
    def _to_device(value: Any) -> Any:
        """An array of NumPy as one to compute with."""
        return as_array(value)

    def _computed(self, params: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """The outputs by name, of inputs that fit."""
        raise NotImplementedError

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        """The same of the model's own parameters, compiled."""
        return self._prepared(self.params, given)

    def _bound(self, args: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return bound(
                self.inputs, args, inputs, whose=self.whose, optional=self._optional,
                names_are_equal=self.names_are_equal,
            )  # fmt: skip
        except ValueError as e:
            raise self.error(str(e)) from None

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, v)) for v in (self.inputs, self.outputs))
        return f"{type(self).__name__}({inputs} -> {outputs})"
