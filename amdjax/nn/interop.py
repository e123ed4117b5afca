"""Parameters from PyTorch and to PyTorch, by the mapping that each layer declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.pytree import tree_flatten_with_path, tree_leaves, tree_unflatten
from amdjax.nn._torch import TorchTensor
from amdjax.nn.layers.containers import Sequential
from amdjax.nn.module import Module
from amdjax.nn.trees import tree_at
from amdjax.numpy._util import is_arraylike

__all__ = ["TorchTensor", "from_torch", "to_torch_state_dict"]

T = TypeVar("T")
_SHOWN = 8  # differences that an error lists


def from_torch(source: Any, like: T) -> T:
    """A network with the parameters of a PyTorch network of the same form.

    Layers correspond by name: a field to the attribute of that name, what stands in lists, tuples
    and `Sequential` to an index. Each layer says itself how its parameters are laid out
    (`Module.torch_tensors`). PyTorch is not needed.

    Args:
      source: a `torch.nn.Module`, a state dict, or a dict of arrays with such names, for example
        from a safetensors file.
      like: a network of the form that is expected; arrays or, in their place, `ShapeDtypeStruct`s.
        The result has its dtypes.

    Returns:
      A network of the form of `like`.

    Raises:
      TypeError: `source` is neither.
      ValueError: entries are missing, left over or of another shape, or a layer of `like` is
        nothing that PyTorch has; the message names them.

        >>> layer = nn.Dense(3, 2, key=amdjax.random.key(0))
        >>> weights = {"weight": np.ones((2, 3)), "bias": np.zeros(2)}
        >>> nn.from_torch(weights, like=layer)(jnp.ones(3))
        Array([3., 3.], dtype=float32)
    """
    tensors = source.state_dict() if hasattr(source, "state_dict") else source
    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"from_torch: source must be a PyTorch module or a dict of arrays, got {source!r}."
        )
    reader = _Reader({name: tensors[name] for name in tensors})
    network = reader.read(like, "")
    wrong = [*reader.wrong, *(f"{name}: of no use in like" for name in reader.left)]
    if wrong:
        more = f"\n  and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        lines = "\n  ".join(wrong[:_SHOWN])
        raise ValueError(f"from_torch: source does not fit like:\n  {lines}{more}")
    return network


def to_torch_state_dict(model: Any) -> dict[str, np.ndarray]:
    """The state dict of a PyTorch network of the same form; the inverse of `from_torch`.

    Args:
      model: a network.

    Returns:
      NumPy arrays by name, from which `torch.from_numpy` makes tensors.

    Raises:
      TypeError: something in it is neither a module nor an array.
      ValueError: a layer is nothing that PyTorch has.

        >>> layer = nn.Dense(3, 2, key=amdjax.random.key(0))
        >>> {name: x.shape for name, x in nn.to_torch_state_dict(layer).items()}
        {'weight': (2, 3), 'bias': (2,)}
    """
    return dict(_written(model, ""))


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """What PyTorch would name below a container, with its name."""
    # One level, by key path: children of lists, dicts and modules alike.
    for path, child in tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[0]:
        entry = path[-1]
        yield str(_first(entry, "name", "key", "idx")), child


def _first(entry: Any, *attributes: str) -> Any:
    return next(getattr(entry, a) for a in attributes if hasattr(entry, a))


def _tensors(name: str, layer: Module, prefix: str) -> list[TorchTensor] | None:
    """A layer's mapping, of the arrays that it has; None if PyTorch knows it by its fields."""
    declared = layer.torch_tensors()
    if declared is None:
        return None
    found = [t for t in declared if t.where is None or tree_leaves(t.find(layer))]
    held = sum(len(tree_leaves(t.find(layer))) for t in found)
    if held != len(tree_leaves(layer)):
        raise ValueError(
            f"{name}: {type(layer).__name__} at {prefix.removesuffix('.') or 'the top'} has "
            "parameters that PyTorch's has not."
        )
    return found


class _Reader:
    """Reads a network out of tensors.

    Args:
      tensors: by name.

    Attributes:
      left: names that nothing has asked for yet.
      wrong: what did not fit.
    """

    def __init__(self, tensors: dict[str, Any]) -> None:
        self._tensors = tensors
        self.left = dict.fromkeys(tensors)
        self.wrong: list[str] = []

    def read(self, node: Any, prefix: str) -> Any:
        """A node of the network with the tensors below a prefix."""
        if (
            isinstance(node, Module)
            and (entries := _tensors("from_torch", node, prefix)) is not None
        ):
            return self._layer(node, prefix, entries)
        if len(tree_leaves(node)) == 1 and tree_leaves(node)[0] is node:
            return self._parameter(node, TorchTensor("", None), prefix.removesuffix("."))
        if isinstance(node, Sequential):
            return node.replace(layers=self.read(node.layers, prefix))
        children = [self.read(child, f"{prefix}{name}.") for name, child in _children(node)]
        _, structure = tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
        return tree_unflatten(structure, children)

    def _layer(self, layer: Module, prefix: str, entries: list[TorchTensor]) -> Module:
        for entry in entries:
            if entry.where is None:
                self.left.pop(prefix + entry.name, None)
                continue
            old = entry.find(layer)
            new = self._parameter(old, entry, prefix + entry.name)
            layer = tree_at(entry.find, layer, new)
        return layer

    def _parameter(self, old: Any, entry: TorchTensor, name: str) -> Any:
        """The array that an entry holds in place of `old`, or the tuple of arrays."""
        if name not in self._tensors:
            self.wrong.append(f"{name}: missing")
            return old
        self.left.pop(name, None)
        tensor = _numpy(self._tensors[name])
        try:
            if not isinstance(old, tuple):
                return jnp.asarray(entry.array(tensor, tuple(old.shape)), old.dtype)
            rows = [entry.expected(tuple(x.shape))[0] for x in old]
            if tensor.shape[:1] != (sum(rows),):
                raise ValueError(f"has shape {tensor.shape}, expected {sum(rows)} rows")
            parts = np.split(tensor, np.cumsum(rows)[:-1])
            return tuple(
                jnp.asarray(entry.array(part, tuple(x.shape)), x.dtype)
                for part, x in zip(parts, old)
            )
        except ValueError as error:
            self.wrong.append(f"{name}: {error}")
            return old


def _numpy(x: Any) -> np.ndarray:
    """A tensor of whatever library as a NumPy array."""
    for step in ("detach", "cpu"):
        x = getattr(x, step)() if hasattr(x, step) else x
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":  # which NumPy lacks; float32 holds it
        x = x.float()
    return np.asarray(x)


def _written(node: Any, prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    """The entries of a node of the network."""
    name = "to_torch_state_dict"
    if isinstance(node, Module) and (entries := _tensors(name, node, prefix)) is not None:
        for entry in entries:
            found = entry.find(node)
            if entry.where is not None:
                parts = found if isinstance(found, tuple) else (found,)
                tensors = [entry.tensor(np.asarray(x)) for x in parts]
                whole = np.concatenate(tensors) if isinstance(found, tuple) else tensors[0]
                yield prefix + entry.name, np.array(whole, order="C")
        return
    if len(tree_leaves(node)) == 1 and tree_leaves(node)[0] is node:
        if not is_arraylike(node):
            raise TypeError(f"to_torch_state_dict: {prefix or 'model'} must be an array: {node!r}.")
        yield prefix.removesuffix("."), np.asarray(node)
        return
    node = node.layers if isinstance(node, Sequential) else node
    for name, child in _children(node):
        yield from _written(child, f"{prefix}{name}.")
