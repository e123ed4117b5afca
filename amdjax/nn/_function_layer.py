"""Layers that are functions with settings."""

from __future__ import annotations

import dataclasses
from typing import Any

from amdjax.nn._arguments import hashable
from amdjax.nn.module import Module


class FunctionLayer(Module):
    """A layer whose fields are the arguments of a function behind `x`; lists become tuples."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, hashable(value))

    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
