"""What an artifact consists of: its members, and what the manifest says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amdjax.core.array import borrowed
from amdjax.core.config import enable_x64
from amdjax.core.pytree import tree_leaves

from .container import Content, hashed
from .kernels import example_sizes, made_for, usual_sizes
from .weights import described, pack
from .written import described_tree, scope_told, with_constants, written_program

__all__ = ["FORMAT", "NAMES", "PROGRAM", "SCHEMA", "WEIGHTS", "parts", "weights_digest"]

#: Schema 2 has hashes of the blocks of large members.
FORMAT, SCHEMA = "amdjax-artifact", 2
PROGRAM, NAMES, WEIGHTS = "program.txt", "names.json", "weights.safetensors"


def parts(
    exported: Any, told: Mapping[str, Any] | None = None,
    params: Mapping[str, np.ndarray] | None = None, *, targets: Sequence[str] = (),
    example: Any = None,
) -> tuple[dict[str, Content], dict[str, Any]]:  # fmt: skip
    """The members of an artifact, and its manifest.

    Args:
      exported: an `Exported`.
      told: more that the manifest says.
      params: arrays by name that are kept with it.
      targets, example: as for `Exported.save`.

    Raises:
      ValueError: as `Exported.save`.
    """
    with enable_x64(exported.enable_x64):
        wanted = [at for at in usual_sizes(exported) if _is_served(exported, at)]
        if (named := example_sizes(exported, example)) is not None:
            wanted = named
        for at in named or ():
            if exported.serving(at) is None:
                raise ValueError(f"save: no program serves {at}")
        if targets and not wanted:
            raise ValueError("save: no usual sizes fit the constraints: give some as example")
    known = scope_told(exported.in_avals)
    arrays, members = dict(params or {}), dict[str, Content]()
    programs, names = {}, {}
    for number, e in enumerate((exported, *exported.apart.values())):
        name = f"program.{number}.txt" if number else PROGRAM
        written = written_program(e.program, known)
        members[name] = written.text.encode()
        if written.names is not None:
            names[name] = written.names
        constants = [_constant(arrays, np.asarray(c)) for c in e.program.consts]
        programs[f"apart.{number}" if number else "main"] = {
            "text": name, "constants": constants, "out_tree": described_tree(e.out_tree),
            **written.told,
        }  # fmt: skip
    if names:
        members[NAMES] = json.dumps(names, separators=(",", ":")).encode()
    members[WEIGHTS] = pack(arrays)
    manifest = {
        "format": FORMAT, "schema": SCHEMA, "amdjax": _version(), "metadata": {},
        "interface": None, "calibration": None, **(told or {}), "name": exported.fun_name,
        "enable_x64": exported.enable_x64, "platforms": list(exported.platforms),
        "in_tree": described_tree(exported.in_tree), "dimensions": known, "programs": programs,
        "arrays": described(arrays), "targets": {},
    }  # fmt: skip
    if targets:
        bind = lambda program: program
        if manifest["interface"] is not None:  # calls of models have their parameters
            values = [borrowed(np.ascontiguousarray(x)) for x in tree_leaves(params or {})]
            digest = weights_digest(hashed(members[WEIGHTS]))
            bind = lambda program: with_constants(program, values, digest)
        made = made_for(exported, known, targets, wanted, bind)
        manifest["targets"] = made.facts
        members.update(made.members)
    return members, manifest


def weights_digest(told: Any) -> str:
    """What tells weights from others, of what the manifest has for their hashes."""
    return json.dumps(told)


def _is_served(exported: Any, sizes: dict[str, int]) -> bool:
    """Whether there is a program for sizes, which functions need not take."""
    try:
        return exported.serving(sizes) is not None
    except Exception:
        return False


def _constant(arrays: dict[str, np.ndarray], value: np.ndarray) -> str:
    """The name of a constant among arrays, where it is once."""
    for name, known in arrays.items():
        if known is value:
            return name
    name = f"constant.{len(arrays)}"
    while name in arrays:
        name += "_"
    arrays[name] = value
    return name


def _version() -> str:
    # late: the package is there when something is saved
    from amdjax import __version__

    return __version__
