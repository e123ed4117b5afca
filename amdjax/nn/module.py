"""Modules: layers and networks as immutable pytrees of their parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from amdjax.core.array import Array
from amdjax.core.pytree import (
    GetAttrKey,
    register_pytree_with_keys,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from amdjax.nn import _scope
from amdjax.nn._torch import TorchTensor
from amdjax.numpy._util import dtype_of, is_arraylike

__all__ = ["Module", "state", "static"]

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A field of a module that belongs to its structure: a size, a name, a function.

    Args:
      kwargs: as for `dataclasses.field`.

        >>> class Power(nn.Module):
        ...     exponent: int = nn.static(default=2)
        >>> amdjax.tree.leaves(Power())
        []
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


def state(**kwargs: Any) -> Any:
    """A field of a module whose arrays are carried along rather than trained.

    Running statistics are the usual case. `Module.record` gives them new values within `apply`;
    `partition` separates them from the parameters.

    Args:
      kwargs: as for `dataclasses.field`.

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
    an `__init__` of its own that assigns the fields, as often as it likes; those that it does not
    assign have their defaults. Afterwards nothing can be changed: `replace` makes a changed copy.

    A module that contains others calls them and has nothing else to do for them. A layer that
    behaves differently in training asks `is_training`, one that needs randomness `next_key`, and
    one with `state` fields hands their new values to `record`. `apply` answers all three.

        >>> class Affine(nn.Module):
        ...     scale: amdjax.Array
        ...     power: int = nn.static(default=1)
        ...     def __call__(self, x):
        ...         return self.scale * x ** self.power
        >>> layer = Affine(jnp.float32(3), power=2)
        >>> layer(2.0)
        Array(12., dtype=float32)
        >>> amdjax.grad(lambda layer: layer(2.0))(layer).scale
        Array(4., dtype=float32)
    """

    #: Whether a call returns `(y, state)`, as recurrent layers do.
    returns_state: ClassVar[bool] = False

    _has_init: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # An `__init__` written by hand is inherited; one made from the fields is made anew.
        cls._has_init = "__init__" in cls.__dict__ or cls._has_init
        dataclasses.dataclass(init=not cls._has_init, repr=False, eq=False)(cls)
        if "__init__" in cls.__dict__:
            cls.__init__ = _completing(cls.__dict__["__init__"])  # type: ignore[method-assign]
        _register(cls)
        defaults = getattr(cls.__dict__.get("__call__"), "__kwdefaults__", None) or {}
        if defaults.get("train") is False:
            warnings.warn(
                f"{cls.__name__}.__call__ takes train=False where its caller says nothing, so that "
                "nn.apply(..., train=True) does not reach it. Make the default None and ask "
                "nn.is_training(train).",
                stacklevel=2,
            )

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; declare it in the class body."
            )
        if id(self) not in _unfinished:
            raise dataclasses.FrozenInstanceError(
                f"{type(self).__name__}.{name} cannot be changed: modules are immutable. "
                f"Make a changed copy with module.replace({name}=...)."
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
        return build(type(self), {**self.__dict__, **changes})

    def next_key(self, key: Any = None) -> Any:
        """A key for what is random in a call of this module.

        Args:
          key: what the module's caller gave; None for one of the `nn.apply` around the call.

        Returns:
          `key` if it was given, else a key that no other request gets.

        Raises:
          ValueError: there is none.
          RuntimeError: the call is inside a function that is transformed by itself within `apply`.

        Example:
          >>> class Noise(nn.Module):
          ...     def __call__(self, x, *, key=None):
          ...         return x + amdjax.random.normal(self.next_key(key), x.shape)
          >>> y, _ = nn.apply(Noise(), jnp.zeros(3), key=amdjax.random.key(0))
        """
        if key is not None:
            return key
        scope = _scope.current()
        if scope is None:
            raise ValueError(
                f"{type(self).__name__}: a key must be given where train=True, to the layer as "
                "key= or to the network by nn.apply(model, ..., key=key, train=True)."
            )
        return scope.next_key(self)

    def record(self, **values: Any) -> None:
        """Give `state` fields new values, in what the `nn.apply` around the call returns.

        A field that holds modules takes them changed, as an inner `nn.apply` returned them; what
        counts of them is their state.

        Args:
          values: the new value of each field, of its form, shapes and dtypes.

        Raises:
          TypeError: there is no such field.
          ValueError: a value differs from the field in form, shape or dtype, or the module is no
            part of what `apply` was given.
          RuntimeError: the call is outside of `apply`, or inside a function that is transformed by
            itself within it.

        Example:
          >>> class Counter(nn.Module):
          ...     calls: amdjax.Array = nn.state()
          ...     def __call__(self):
          ...         self.record(calls=self.latest().calls + 1)
          >>> nn.apply(Counter(jnp.int32(0)))[1].calls
          Array(1, dtype=int32)
        """
        scope = _scope.current()
        if scope is None:
            raise RuntimeError(
                f"{type(self).__name__} changes its state, which a call outside of nn.apply would "
                "lose. Call the network as y, model = nn.apply(model, x, train=True)."
            )
        scope.record(self, {name: _renewed(self, name, new) for name, new in values.items()})

    def latest(self) -> Self:
        """This module with what it has recorded so far in the `nn.apply` around the call.

        A layer that is called twice goes on from its first call by it.
        """
        scope = _scope.current()
        changes = scope and scope.records.get(id(self))
        return self.replace(**changes) if changes else self

    def torch_tensors(self) -> Sequence[TorchTensor] | None:
        """What PyTorch calls the parameters of this layer, and how it lays them out.

        Returns:
          The entries of the layer's state dict; None if they are called as the fields are.
        """
        return None

    def __repr__(self) -> str:
        """Constructor form: arrays as dtype and shape, settings that are not the usual ones."""
        cls: Any = type(self)
        usual = _defaults(cls)
        fields = {f.name: f for f in dataclasses.fields(cls) if f.repr and hasattr(self, f.name)}
        shown = [
            f"{name}={text(getattr(self, name))}"
            for name, field in fields.items()
            if not (field.metadata.get("static") and usual.get(name, self) == getattr(self, name))
        ]
        return _bracketed(f"{cls.__name__}(", shown, ")")


#: The ids of modules whose `__init__` is under way.
_unfinished: set[int] = set()


def _completing(init: Any) -> Any:
    """An `__init__` behind which a module has all of its fields, and keeps them."""

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if id(self) in _unfinished:  # called by that of a subclass
            return init(self, *args, **kwargs)
        _unfinished.add(id(self))
        try:
            init(self, *args, **kwargs)
            for field in dataclasses.fields(self):
                if field.name not in self.__dict__:
                    setattr(self, field.name, _default(self, field))
        finally:
            _unfinished.discard(id(self))

    return __init__


def _default(module: Any, field: dataclasses.Field[Any]) -> Any:
    """What a field holds that `__init__` did not assign."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise AttributeError(
        f"{type(module).__name__}.{field.name} was never assigned; __init__ must assign every "
        "field without a default."
    )


def build(cls: type[T], values: dict[str, Any]) -> T:
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
            raise AttributeError(f"{cls.__name__}.{error.args[0]} is not assigned yet.") from None

    def flatten(module: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return get(module, names), get(module, static_names)

    def flatten_with_keys(module: Any) -> tuple[Any, tuple[Any, ...]]:
        return tuple(zip(keys, get(module, names))), get(module, static_names)

    def unflatten(meta: tuple[Any, ...], children: Any) -> Any:
        return build(cls, {**dict(zip(names, children)), **dict(zip(static_names, meta))})

    register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


@functools.cache
def _defaults(cls: type) -> dict[str, Any]:
    return {p.name: p.default for p in inspect.signature(cls).parameters.values()}


def text(value: Any) -> str:
    """A value in constructor form, arrays as dtype and shape."""
    if isinstance(value, (Array, np.ndarray)):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if type(value) is tuple:
        return _bracketed("(", list(map(text, value)), ",)" if len(value) == 1 else ")")
    if type(value) is list:
        return _bracketed("[", list(map(text, value)), "]")
    if type(value) is dict:
        return _bracketed("{", [f"{k!r}: {text(v)}" for k, v in value.items()], "}")
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = zip(value._fields, value)
        return _bracketed(f"{type(value).__name__}(", [f"{k}={text(v)}" for k, v in pairs], ")")
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


def in_state(tree: Any, inside: bool = False) -> Iterator[bool]:
    """Whether each leaf of a tree belongs to a `state` field, in the order of leaves."""
    for node in tree_leaves(tree, is_leaf=lambda x: isinstance(x, Module)):
        if not isinstance(node, Module):
            yield inside
            continue
        for field in dataclasses.fields(node):  # type: ignore[arg-type]
            if not field.metadata.get("static"):
                held = inside or bool(field.metadata.get("state"))
                yield from in_state(getattr(node, field.name), held)


def _renewed(module: Module, name: str, new: Any) -> Any:
    """The value of a field with the state that `new`, of the same form, has."""
    what = f"{type(module).__name__}.record: {name}"
    field = module.__dataclass_fields__.get(name)  # type: ignore[attr-defined]
    if field is None or field.metadata.get("static"):
        raise TypeError(f"{what} is no field of it that holds state or modules.")
    old = getattr(module, name)
    leaves, tree = tree_flatten(old, is_leaf=_is_none)
    new_leaves, new_tree = tree_flatten(new, is_leaf=_is_none)
    of_state = in_state(old, bool(field.metadata.get("state")))
    fits = tree == new_tree
    for i, (leaf, new_leaf) in enumerate(zip(leaves, new_leaves) if fits else ()):
        if leaf is None:
            fits = fits and new_leaf is None
        elif next(of_state):
            fits = fits and _kind(leaf) == _kind(new_leaf)
            leaves[i] = new_leaf
    if not fits:
        raise ValueError(f"{what} must keep the form {text(old)}, got {text(new)}.")
    return tree_unflatten(tree, leaves)


def _is_none(x: Any) -> bool:
    return x is None


def _kind(x: Any) -> Any:
    return (np.shape(x), dtype_of(x)) if is_arraylike(x) else type(x)
