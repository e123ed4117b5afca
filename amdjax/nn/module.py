"""Modules: layers and networks as immutable pytrees of their parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.pytree import (
    GetAttrKey,
    KeyPath,
    register_pytree_with_keys,
    tree_leaves,
    tree_map,
    tree_map_with_path,
)
from amdjax.numpy._util import dtype_of, is_arraylike

__all__ = ["Module", "combine", "count_parameters", "is_stateful", "partition", "state", "static"]

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A field of a module that belongs to its structure: a size, a name, a function.

    Args:
      kwargs: as for `dataclasses.field`.

    Example:
      >>> class Power(nn.Module):
      ...     exponent: int = nn.static(default=2)
      >>> amdjax.tree.leaves(Power())
      []
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


def state(**kwargs: Any) -> Any:
    """A field of a module whose arrays are carried along rather than trained.

    Running statistics are the usual case. `partition` separates such fields from the parameters.

    Args:
      kwargs: as for `dataclasses.field`.

    Example:
      >>> class Counter(nn.Module):
      ...     count: amdjax.Array = nn.state()
      >>> nn.count_parameters(Counter(jnp.zeros(())))
      0
    """
    return dataclasses.field(metadata={"state": True}, **kwargs)


@dataclass_transform(field_specifiers=(static, state))
class Module:
    """Base class of layers and networks.

    A subclass declares its fields like a dataclass, which it becomes: arrays, other modules and
    containers of them are the children of a pytree; fields declared with `static` belong to its
    structure. So `jit`, `grad`, `vmap` and `tree.map` take modules as they are. A subclass may have
    an `__init__` of its own that assigns each field once. Afterwards nothing can be changed:
    `replace` makes a changed copy.

    By convention a layer is called as `layer(x, *, key=None, train=False)`, with a key where it
    needs randomness. A layer with `state` fields returns `(y, layer)`: its result and the layer as
    it is from then on.

        >>> class Affine(nn.Module):
        ...     scale: amdjax.Array
        ...     power: int = nn.static(default=1)
        ...     def __call__(self, x, *, key=None, train=False):
        ...         return self.scale * x ** self.power
        >>> layer = Affine(jnp.float32(3), power=2)
        >>> layer(2.0)
        Array(12., dtype=float32)
        >>> amdjax.grad(lambda layer: layer(2.0))(layer).scale
        Array(4., dtype=float32)
    """

    _has_init: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # An `__init__` written by hand is inherited; one made from the fields is made anew.
        cls._has_init = "__init__" in cls.__dict__ or cls._has_init
        dataclasses.dataclass(init=not cls._has_init, repr=False, eq=False)(cls)
        _register(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise dataclasses.FrozenInstanceError(
                f"{type(self).__name__}.{name} cannot be changed: modules are immutable. "
                f"Make a changed copy with module.replace({name}=...)."
            )
        if name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; declare it in the class body."
            )
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__}.{name} cannot be deleted: modules are immutable."
        )

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed.

        Args:
          changes: the new value of each field.

        Returns:
          A module of the same class.

        Raises:
          TypeError: there is no such field.

        Example:
          >>> layer = nn.Dense(2, 3, key=amdjax.random.key(0))
          >>> layer.replace(bias=None)
          Dense(kernel=float32[2,3], bias=None)
        """
        if unknown := changes.keys() - self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise TypeError(f"{type(self).__name__} has no field {min(unknown)!r}.")
        return _build(type(self), {**self.__dict__, **changes})

    def __repr__(self) -> str:
        """Constructor form: arrays as dtype and shape, settings that are not the usual ones."""
        cls: Any = type(self)
        usual = _defaults(cls)
        fields = {f.name: f for f in dataclasses.fields(cls) if f.repr and hasattr(self, f.name)}
        shown = [
            f"{name}={_text(getattr(self, name))}"
            for name, field in fields.items()
            if not (field.metadata.get("static") and usual.get(name, self) == getattr(self, name))
        ]
        return _bracketed(f"{cls.__name__}(", shown, ")")


def _build(cls: type[T], values: dict[str, Any]) -> T:
    """An instance with given fields, without a call of `__init__`."""
    module = object.__new__(cls)
    module.__dict__.update(values)
    return module


def _register(cls: type) -> None:
    fields = dataclasses.fields(cls)
    static_names = tuple(f.name for f in fields if f.metadata.get("static"))
    names = tuple(f.name for f in fields if not f.metadata.get("static"))
    keys = tuple(map(GetAttrKey, names))

    def get(module: Any, wanted: tuple[str, ...]) -> tuple[Any, ...]:
        try:
            return tuple(module.__dict__[name] for name in wanted)
        except KeyError as error:
            raise AttributeError(
                f"{cls.__name__}.{error.args[0]} was never assigned; __init__ must assign every "
                "field."
            ) from None

    def flatten(module: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return get(module, names), get(module, static_names)

    def flatten_with_keys(module: Any) -> tuple[Any, tuple[Any, ...]]:
        return tuple(zip(keys, get(module, names))), get(module, static_names)

    def unflatten(meta: tuple[Any, ...], children: Any) -> Any:
        return _build(cls, {**dict(zip(names, children)), **dict(zip(static_names, meta))})

    register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


@functools.cache
def _defaults(cls: type) -> dict[str, Any]:
    return {p.name: p.default for p in inspect.signature(cls).parameters.values()}


def _text(value: Any) -> str:
    if isinstance(value, (Array, np.ndarray)):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if type(value) is tuple:
        return _bracketed("(", list(map(_text, value)), ",)" if len(value) == 1 else ")")
    if type(value) is list:
        return _bracketed("[", list(map(_text, value)), "]")
    if type(value) is dict:
        return _bracketed("{", [f"{k!r}: {_text(v)}" for k, v in value.items()], "}")
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = zip(value._fields, value)
        return _bracketed(f"{type(value).__name__}(", [f"{k}={_text(v)}" for k, v in pairs], ")")
    return getattr(value, "__name__", None) or repr(value)


def _bracketed(left: str, items: list[str], right: str) -> str:
    """On one line where there is room, else one item a line."""
    line = left + ", ".join(items) + right
    if len(line) <= 92 and "\n" not in line:
        return line
    if len(items) == 1:
        return line
    return (
        left
        + "".join(f"\n  {item.replace(chr(10), chr(10) + '  ')}," for item in items)
        + "\n"
        + right
    )


def partition(tree: T) -> tuple[T, T]:
    """The trained parameters of a network and all else, in two trees of its form.

    Each has None where the other has a leaf. Parameters are the floating-point and complex arrays
    outside of `state` fields.

    Args:
      tree: a module, or a container of modules.

    Returns:
      `(parameters, rest)`; `combine` joins them.

        >>> layer = nn.BatchNorm(3)
        >>> parameters, rest = nn.partition(layer)
        >>> parameters
        BatchNorm(scale=float32[3], bias=float32[3], mean=None, variance=None)
        >>> nn.combine(parameters, rest)
        BatchNorm(scale=float32[3], bias=float32[3], mean=float32[3], variance=float32[3])
    """
    is_parameter = tree_map_with_path(lambda path, x: _is_parameter(tree, path, x), tree)
    parameters = tree_map(lambda x, yes: x if yes else None, tree, is_parameter)
    rest = tree_map(lambda x, yes: None if yes else x, tree, is_parameter)
    return parameters, rest


def combine(*trees: T) -> T:
    """Join what `partition` separated: each leaf from the first tree that has it.

    Args:
      trees: trees of one form with None for missing leaves.

    Example:
      >>> nn.combine({"a": 1, "b": None}, {"a": None, "b": 2})
      {'a': 1, 'b': 2}
    """
    first = lambda *leaves: next((x for x in leaves if x is not None), None)
    return tree_map(first, *trees, is_leaf=lambda x: x is None)


def _is_parameter(tree: Any, path: KeyPath, leaf: Any) -> bool:
    if not is_arraylike(leaf) or not dtypes.issubdtype(dtype_of(leaf), np.inexact):
        return False
    for entry in path:
        if isinstance(entry, GetAttrKey):
            field = getattr(tree, "__dataclass_fields__", {}).get(entry.name)
            if field is not None and field.metadata.get("state"):
                return False
            tree = getattr(tree, entry.name)
        else:
            key = getattr(entry, "key", getattr(entry, "idx", None))
            tree = tree[key]
    return True


def is_stateful(tree: Any) -> bool:
    """Whether a module has `state` fields anywhere, so that it returns itself beside its result.

    Args:
      tree: a module, or a container of modules.

        >>> nn.is_stateful(nn.BatchNorm(3)), nn.is_stateful(nn.Dropout(0.5))
        (True, False)
    """
    modules = tree_leaves(tree, is_leaf=lambda x: isinstance(x, Module) and x is not tree)
    if isinstance(tree, Module) and any(
        f.metadata.get("state")
        for f in dataclasses.fields(tree)  # type: ignore[arg-type]
    ):
        return True
    return any(is_stateful(m) for m in modules if isinstance(m, Module) and m is not tree)


def count_parameters(tree: Any) -> int:
    """The number of trained numbers in a network.

    Args:
      tree: a module, or a container of modules.

        >>> nn.count_parameters(nn.Dense(2, 3, key=amdjax.random.key(0)))
        9
    """
    return sum(int(x.size) for x in tree_leaves(partition(tree)[0]))
