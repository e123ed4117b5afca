"""Which products are quantized, and how."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from amdjax.quantize.formats import FORMATS, Format, format_of
from amdjax.quantize.programs import DEEPEST, Product, Program

__all__ = ["Recipe"]

MODES = ("static", "dynamic", "weights")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a product is quantized.

    Args:
      mode: "static", "dynamic" or "weights"; see `quantize`.
      dtype: the name of a format.
      per_channel: whether each channel of a weight has a scale.
      symmetric: whether zeros are stored as 0; None for weights but not for activations.
      group: how many neighbors of a weight share a scale; None for the format's own.

    Raises:
      ValueError: an unknown mode or dtype, or a dtype that the mode does not have.

        >>> Recipe("weights", "int4", group=64)
        Recipe(mode='weights', dtype='int4', per_channel=True, symmetric=None, group=64)
    """

    mode: str = "static"
    dtype: str = "int8"
    per_channel: bool = True
    symmetric: bool | None = None
    group: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"quantize: mode must be one of {MODES}, got {self.mode!r}.")
        form = format_of("quantize", self.dtype)
        object.__setattr__(self, "dtype", form.name)
        if self.mode != "weights" and form.is_scaled and (form.per_byte > 1 or form.bits > 8):
            raise ValueError(
                f"quantize: dtype {form.name} is for mode='weights', got mode={self.mode!r}."
            )
        if self.mode != "weights" and self.group:
            raise ValueError(f"quantize: group is for mode='weights', got mode={self.mode!r}.")
        if form.is_integer and not form.lowest and self.symmetric:
            raise ValueError(f"quantize: symmetric must not be True for dtype {form.name}.")

    @property
    def form(self) -> Format:
        """The format."""
        return FORMATS[self.dtype]

    @property
    def of_weights(self) -> bool:
        """Whether zeros of weights are stored as 0."""
        unsigned = self.form.is_integer and not self.form.lowest
        return not unsigned if self.symmetric is None else self.symmetric

    @property
    def of_inputs(self) -> bool:
        """Whether zeros of activations are stored as 0."""
        return not self.form.is_integer if self.symmetric is None else self.symmetric


@dataclasses.dataclass(frozen=True)
class Decision:
    """What is done with a product.

    Attributes:
      product: the product.
      recipe: how it is quantized; None if it stays as it is.
      inputs: for each operand under what name its scale is kept, if it is calibrated.
    """

    product: Product
    recipe: Recipe | None
    inputs: tuple[str | None, str | None] = (None, None)


Rules = Callable[[Product], Any] | Mapping[str, Any] | None


def decide(program: Program, recipe: Recipe, rules: Rules, exclude: Any) -> dict[str, Decision]:
    """A decision for each product of a program.

    Raises:
      ValueError: `exclude` or `rules` name no product, or a rule says what is no recipe.
    """
    excluded = _excluded(program, exclude)
    say = _rule(program, rules)
    names: dict[Any, str] = {}
    found = {}
    for product in program.products:
        own = None if product.name in excluded else _recipe(say(product), product, recipe)
        inputs: tuple[str | None, str | None] = (None, None)
        if own is not None and own.mode == "static" and own.form.is_scaled:
            if not product.seen:
                own = dataclasses.replace(own, mode="dynamic")
            else:
                inputs = _inputs(product, own, names)
        found[product.name] = Decision(product, own, inputs)
    return found


def _inputs(product: Product, recipe: Recipe, names: dict[Any, str]) -> Any:
    """Names of scales; one for all products that read a value alike."""

    def name(side: int) -> str | None:
        atom = product.eqn.invars[side]
        if side == product.weight:
            return None
        own = product.name if product.weight is not None else f"{product.name}[{side}]"
        return names.setdefault((atom, recipe.dtype, recipe.of_inputs, product.rows), own)

    return name(0), name(1)


def _recipe(said: Any, product: Product, recipe: Recipe) -> Recipe | None:
    if said is False:
        return None
    if said is None or said is True:
        if product.weight is None and said is None:
            return None
    elif isinstance(said, Recipe):
        recipe = said
    elif isinstance(said, (str, np.dtype, type)):
        recipe = dataclasses.replace(recipe, dtype=format_of("quantize: rules", said).name)
    else:
        raise ValueError(
            f"quantize: rules must say True, False, None, a dtype or a Recipe of "
            f"{product.name!r}, got {said!r}."
        )
    if product.weight is None and recipe.mode == "weights" and recipe.form.is_scaled:
        return None
    too_deep = recipe.form.is_integer and recipe.mode != "weights" and product.depth > DEEPEST
    return None if too_deep else recipe


def _excluded(program: Program, exclude: Any) -> set[str]:
    given = [exclude] if isinstance(exclude, str) else list(exclude)
    names = [p.name for p in program.products]
    found: set[str] = set()
    for pattern in given:
        found.update(_matching("exclude", pattern, names))
    return found


def _matching(argument: str, pattern: Any, names: list[str]) -> list[str]:
    matched = [n for n in names if n == pattern or fnmatch.fnmatchcase(n, str(pattern))]
    if not matched:
        raise ValueError(
            f"quantize: {argument} names {pattern!r}, which is no product of the function; these "
            f"are: {', '.join(names) or 'none'}."
        )
    return matched


def _rule(program: Program, rules: Rules) -> Callable[[Product], Any]:
    if rules is None:
        return lambda product: None
    if not isinstance(rules, Mapping):
        return rules
    said: dict[str, Any] = {}
    for pattern, value in rules.items():
        of_operation = [p.name for p in program.products if p.operation == pattern]
        names = [p.name for p in program.products]
        for name in of_operation or _matching("rules", pattern, names):
            said.setdefault(name, value)
    return lambda product: said.get(product.name)
