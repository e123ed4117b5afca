"""Programs with weights and machine code, read from a file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.array import borrowed
from amdjax.core.backend import get_backend
from amdjax.core.config import config, enable_x64
from amdjax.core.dims import SymbolicScope
from amdjax.core.dtypes import canonicalize_dtype
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_leaves

from .container import MANIFEST, ArtifactError, Data, Members, parsed_json
from .file_map import files_of
from .kernels import CHOICES, TargetKernels, log_differences, read_choices
from .model import FileModel
from .names import name_operations
from .parts import FORMAT, NAMES, SCHEMA, WEIGHTS, weights_digest
from .program import Exported, checked_platforms, types_text
from .values import as_array, read_value, value_of
from .weights import unpack
from .written import (
    TEXT_BYTES,
    check_types,
    late_program,
    read_program,
    read_scope,
    read_tree,
    read_unequal,
)

__all__ = ["Artifact", "deserialize", "load_artifact"]

_OLD = b"amdjax-exported\n"


def load_artifact(
    path: str | os.PathLike[str], *, trust: bool = False, keys: Mapping[str, bytes] | None = None
) -> Artifact:
    """Read an artifact, as `Exported.save` and `save` of models and compiled programs write it.

    Nothing is traced. Weights stay in the file, which is mapped into memory.

    Args:
      path: the file.
      trust: whether its machine code may run. Without it, all is compiled from the program's text,
        which is data: reading it runs nothing, wherever the file is from.
      keys: secrets by name. A file that is signed by one of them (HMAC-SHA256) is trusted.

    Returns:
      The artifact.

    Raises:
      ArtifactError: it is damaged or no artifact, or its signature does not hold; a `ValueError`.
      FileNotFoundError: there is no such file.

    Example:
      >>> import tempfile
      >>> exported = amdjax.export.export(amdjax.jit(lambda x: x * 2))(jnp.zeros(2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     exported.save(folder + "/double.amdjax", metadata={"by": "me"})
      ...     artifact = amdjax.load_artifact(folder + "/double.amdjax")
      >>> artifact(np.ones(2, np.float32)), artifact.metadata
      (Array([2., 2.], dtype=float32), {'by': 'me'})
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"load_artifact: path must be a path, got {type(path).__name__}")
    members = Members(path)
    return _artifact(members, trust or members.signed_by(dict(keys or {})) is not None)


def _artifact(members: Members, trusted: bool) -> Artifact:
    """The artifact, if no member is damaged."""
    try:
        return Artifact(members, trusted)
    finally:
        members.check()  # what it raises tells more than what damaged members lead to


def deserialize(blob: Data) -> Exported:
    """The program that `Exported.serialize` wrote. No code in it is run.

    Args:
      blob: the bytes.

    Raises:
      TypeError: they are no bytes.
      ValueError: they are damaged, or of another version.
    """
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeError(f"deserialize: blob must be bytes, got {type(blob).__name__}")
    if bytes(blob[: len(_OLD)]) == _OLD:
        raise ArtifactError("deserialize: it was written by a version before 0.2; export it again")
    try:
        return _artifact(Members(bytes(blob)), False).exported
    except ArtifactError as e:
        raise ArtifactError(f"deserialize: {e}") from None


class Artifact(FileModel):
    """A program with its weights, by `load_artifact`.

    What a model was saved as is called like the model: with inputs in their order or by name, for
    outputs by name. What a function was saved as is called as the function was, and has no
    parameters.

    Args:
      members: the file.
      trusted: whether its machine code may run.

    Attributes:
      params: arrays by name, of NumPy: views of the file.
      inputs, outputs: their names, dtypes and shapes, of which some dimensions are names.
      metadata: texts by name.
      manifest: what the file says of itself, as JSON.
      targets: what machine code is in it for, whether or not it is used.
      exported: the program.
      is_trusted: whether its machine code may run.
    """

    error = ArtifactError
    whose = "the artifact"

    def __init__(self, members: Members, trusted: bool):
        self.manifest = members.manifest
        self.is_trusted = trusted
        arrays = _arrays(members)
        settings = _settings(members, trusted)
        if trusted:
            log_differences(self.manifest.get("targets"))
        self.exported = _exported(members, arrays, settings, trusted)
        try:
            told = self.manifest["interface"]
            self.targets = tuple(map(str, self.manifest["targets"]))
            metadata = {str(k): v for k, v in self.manifest["metadata"].items()}
            self._is_model = told is not None
            params, inputs, outputs, optional = _interface(told, self.exported, arrays)
        except Exception as e:
            raise _refused(MANIFEST, e) from None
        super().__init__(params, inputs, outputs, metadata, optional)
        self._files = files_of(arrays.values())  # also those of a function, which no params are
        self._as_saved = dict(self.params)
        self._digest = weights_digest(self.manifest["hashes"][WEIGHTS])

    def function(self, params: Mapping[str, Any], *args: Any, **inputs: Any) -> Any:
        """The program as a pure function, to be transformed by `jit`, `grad`, `vmap` and others.

        Args:
          params: arrays by name, as in `self.params`.
          args, inputs: as for a call.

        Returns:
          What a call returns.

        Raises:
          ValueError: an input is missing, unknown or of another dtype or shape.
        """
        if not self._is_model:
            return self.exported.call(*args, **inputs)
        return super().function(params, *args, **inputs)

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """The outputs by name, of inputs in their order or by name; or the function's results."""
        if not self._is_model:
            self._check_files()
            return self.exported.call(*args, **inputs)
        return super().__call__(*args, **inputs)

    def _exported_for(self, trace: Callable[..., Exported], example: Any) -> Exported:
        return self.exported

    @staticmethod
    def _to_device(value: Any) -> Any:
        on_host = get_backend().program_placement() is None and value.flags.c_contiguous
        return borrowed(value) if on_host else as_array(value)

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        saved, params = self._as_saved, self.params
        if len(params) == len(saved) and all(saved.get(n) is v for n, v in params.items()):
            return self._called(self._of_inputs.call, given)
        return self._computed(self._prepared.arrays(params), given)

    @functools.cached_property
    def _of_inputs(self) -> Exported:
        """The program with the parameters that were saved, for which plans and kernels are."""
        leaves = tree_leaves(self._as_saved)
        return self.exported.with_parameters(list(map(self._to_device, leaves)), self._digest)

    def save(self, path: Any, **options: Any) -> None:
        """Write it again, as `Model.save` and `Exported.save` do, for other targets."""
        if self._is_model:
            super().save(path, **options)
        else:
            self.exported.save(path, **{"metadata": self.metadata, **options})

    def _computed(self, params: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        # Inputs of 32 bits stand for those of 64 where these are off.
        with enable_x64(self.exported.enable_x64):
            params = {name: as_array(params[name], v.dtype) for name, v in self.params.items()}
        return self._called(lambda **given: self.exported.call(params, **given), given)

    def _called(self, call: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
        """The outputs by name, of inputs that fit."""
        with enable_x64(self.exported.enable_x64):
            made = call(**{v.name: as_array(given[v.name], v.dtype) for v in self.inputs})
        if config.enable_x64:
            return made
        return {k: as_array(y, canonicalize_dtype(y.dtype)) for k, y in made.items()}


def _settings(members: Members, trusted: bool) -> Callable[[], AbstractContextManager[Any]]:
    """Makes the context in which choices are found, and kernels if they are trusted."""
    made: list[Callable[[], AbstractContextManager[Any]]] = []
    if CHOICES in members:
        # late: loads the compiler
        from amdjax.jit.finding import choices_from

        carried = read_choices(members[CHOICES])
        made.append(lambda: choices_from(carried))
    if trusted:
        # late: loads the compiler
        from amdjax.jit.kernels import kernels_from

        kernels = TargetKernels(members)
        made.append(lambda: kernels_from(kernels))

    @contextmanager
    def settings() -> Iterator[None]:
        with ExitStack() as stack:
            for context in made:
                stack.enter_context(context())
            yield

    return settings if made else nullcontext


def _arrays(members: Members) -> dict[str, np.ndarray]:
    told = members.manifest
    if told.get("format") != FORMAT:
        raise ArtifactError(f"{MANIFEST}: this is no artifact")
    if told.get("schema") not in range(1, SCHEMA + 1):
        raise ArtifactError(
            f"{MANIFEST}: it has the schema {told.get('schema')!r}, this reads 1 to {SCHEMA}"
        )
    if not isinstance(told.get("arrays"), dict):
        raise ArtifactError(f"{MANIFEST}: what is said of arrays is no object")
    return unpack(members[WEIGHTS], told["arrays"], WEIGHTS)


def _exported(
    members: Members, arrays: Mapping[str, np.ndarray],
    settings: Callable[[], AbstractContextManager[Any]], trusted: bool,
) -> Exported:  # fmt: skip
    """The program of an artifact, and those for sizes apart from it."""
    told = members.manifest
    try:
        wide, name = told["enable_x64"] is True, str(told["name"])
        platforms = checked_platforms("it", told["platforms"])
        in_tree = read_tree(told["in_tree"])
        scope, count = read_scope(told["dimensions"]), len(told["programs"])
        entries = [_Entry.read(told["programs"][k], arrays) for k in _names(count)]
    except Exception as e:  # what a manifest holds may be anything
        raise _refused(MANIFEST, e) from None
    made: list[Exported] = []
    with enable_x64(wide):
        for entry in entries:
            program = _program(members, entry, scope, trusted, wide)
            ins, outs = tuple(program.in_avals), tuple(program.out_avals)
            if (in_tree.num_leaves, entry.out_tree.num_leaves) != (len(ins), len(outs)):
                raise ArtifactError(f"{MANIFEST}: the structures do not fit {entry.member}")
            made.append(
                Exported(
                    name, in_tree, ins, entry.out_tree, outs, program, platforms, wide, settings
                )
            )
        try:
            read_unequal(told["dimensions"], scope)
        except Exception as e:
            raise _refused(MANIFEST, e) from None
    made[0].apart.update((types_text(e.in_avals), e) for e in made[1:])
    return made[0]


def _names(count: int) -> list[str]:
    return ["main", *(f"apart.{number}" for number in range(1, count))]


def _refused(member: str, e: Exception) -> ArtifactError:
    return (
        e if isinstance(e, ArtifactError) else ArtifactError(f"{member}: {type(e).__name__}: {e}")
    )


class _Entry(NamedTuple):
    """What the manifest says of a program."""

    member: str
    constants: list[Any]
    out_tree: PyTreeDef
    told: dict[str, Any]

    @classmethod
    def read(cls, told: Any, arrays: Mapping[str, np.ndarray]) -> _Entry:
        if not isinstance(told["text"], str):
            raise ValueError("a program has no text")
        constants = [borrowed(arrays[name]) for name in told["constants"]]
        return cls(told["text"], constants, read_tree(told["out_tree"]), told)


def _program(
    members: Members, entry: _Entry, scope: SymbolicScope, trusted: bool, wide: bool
) -> ClosedJaxpr:
    """A program; of a file that is trusted it is read when it is asked for, as without a plan."""
    data = members[entry.member]

    def read() -> ClosedJaxpr:
        try:
            with enable_x64(wide):
                found = read_program(bytes(data).decode(), scope, entry.constants)
            check_types(found, entry.told)
            if NAMES in members:
                _name(found, members, entry.member)
            return found
        except ArtifactError:
            raise
        except Exception as e:  # a text may be anything
            raise ArtifactError(f"{entry.member}: the program cannot be read: {e}") from None

    if len(data) > TEXT_BYTES:
        raise ArtifactError(f"{entry.member}: it is too long, of {len(data)} bytes")
    if not (trusted and "in_types" in entry.told):
        return read()
    known = members.manifest["dimensions"]
    try:
        return late_program(bytes(data), entry.told, known, scope, entry.constants, read)
    except Exception as e:  # what a manifest holds may be anything
        raise _refused(MANIFEST, e) from None


def _name(program: ClosedJaxpr, members: Members, member: str) -> None:
    """Give the operations of a program the names that are told."""
    told = parsed_json(members[NAMES], NAMES)
    try:
        if member in told:
            name_operations(program, told[member])
    except Exception as e:  # what is told may be anything
        raise _refused(NAMES, e) from None


def _interface(told: Any, exported: Exported, arrays: Mapping[str, np.ndarray]) -> Any:
    """Parameters, inputs, outputs, and names of inputs that may be left out."""
    names = [str(n) for n in range(len(exported.in_avals))]
    if told is None:
        inputs = list(map(value_of, names, exported.in_avals))
        outs = [str(n) for n in range(len(exported.out_avals))]
        return {}, inputs, list(map(value_of, outs, exported.out_avals)), ()
    params = {name: arrays[name] for name in told["params"]}
    inputs, outputs = (list(map(read_value, told[k])) for k in ("inputs", "outputs"))
    expected = ((params,), {v.name: 0 for v in inputs})
    if tree_flatten(expected)[1] != exported.in_tree:
        raise ValueError("parameters and inputs are not those of the program")
    if tree_flatten({v.name: 0 for v in outputs})[1] != exported.out_tree:
        raise ValueError("outputs are not those of the program")
    return params, inputs, outputs, ()
