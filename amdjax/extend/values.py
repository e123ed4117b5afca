"""Types of values of a library's own, as far as libraries must find them to be imported.

Values in programs are arrays, keys, references and tokens. A library may derive from these classes,
but not bind what it derived.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from amdjax.core.aval import AbstractValue, ShapedArray as ShapedArray
from amdjax.core.effects import control_flow_allowed_effects as control_flow_allowed_effects
from amdjax.core.primitive import Primitive
from amdjax.core.ref import AbstractRef as AbstractRef
from amdjax.transforms.zero import (
    Zero as Zero,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
)


class HiType(AbstractValue):
    """The type of a library's own values."""


class MutableHiType(HiType):
    """The type of a library's own values that change."""


class HiPspec:
    """How values of a library's own type are divided among devices."""


class HiPrimitive(Primitive):
    """An operation on a library's own values.

    Args:
      name: its name.
    """

    def __init__(self, name: str):
        self.name, self.multiple_results = name, False

    def bind(self, *args: Any, **params: Any) -> Any:
        """Refuse.

        Raises:
          NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{self.name}: values of types of one's own (hijax) are not supported; "
            "arrays, references and pytrees of them are"
        )


class VJPHiPrimitive(HiPrimitive):
    """An operation on a library's own values that has a reverse derivative.

    Args:
      name: its name.
    """


class AvalQDD(NamedTuple):
    """A type and what is known of a changing value.

    Args:
      aval: the type.
      qdd: what is known.
    """

    aval: Any
    qdd: Any


class AvalMutableQDD(NamedTuple):
    """A type and a cell for what is known of a changing value.

    Args:
      aval: the type.
      mutable_qdd: the cell.
    """

    aval: Any
    mutable_qdd: Any


class aval_property(NamedTuple):
    """A property of traced values.

    Args:
      fget: a function of the tracer.
    """

    fget: Any


class aval_method(NamedTuple):
    """A method of traced values.

    Args:
      fun: a function of the tracer and arguments.
    """

    fun: Any


def register_hitype(value_type: type, type_of: Any) -> None:
    """Nothing: operations take no values of the type.

    Args:
      value_type: the class of the values.
      type_of: a function from a value to its type.

        >>> register_hitype(int, type)
    """
