"""Weights of recurrent layers by layer, direction and gate; in one vector; and PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, as_array
from amdjax.rnn.cells import Weights

__all__ = ["Gate", "Layer", "Parameters", "from_torch", "pack", "to_torch", "unpack"]

M = TypeVar("M")

#: Names of gates as they stand in `Weights`, by their number.
GATES = {1: ("h",), 3: ("r", "z", "n"), 4: ("i", "f", "g", "o")}
#: Their order in a packed vector.
PACKED = {1: ("h",), 3: ("z", "r", "n"), 4: ("i", "f", "o", "g")}
PARTS = ("input_kernel", "hidden_kernel", "input_bias", "hidden_bias")
#: The gates that the memory of an LSTM reaches, as `peepholes` holds them.
PEEPHOLES = ("i", "f", "o")


def gate_count(weights: Weights) -> int:
    """How many gates weights have."""
    square = weights.hidden_kernel if weights.projection is None else weights.projection
    return weights.hidden_kernel.shape[1] // square.shape[0]


class Place(NamedTuple):
    """Where a part of a gate lies in a packed vector: `offset` elements from its beginning."""

    offset: int
    shape: tuple[int, ...]


class Parameters(NamedTuple):
    """The weights of a recurrent module, to be read and replaced gate by gate.

    `module.params` gives them. Nothing is changed in place: `gate(...).replace` returns new
    parameters, whose `weights` a module takes by `module.replace(weights=...)`.

    Args:
      weights: one entry for each layer and direction, the directions of a layer side by side.
      directions: of each layer, "forward" or "reverse".

        >>> net = rnn.GRU(3, 5, layers=2, key=amdjax.random.key(0))
        >>> gate = net.params.layer(1).gate("z")
        >>> gate.hidden_kernel.shape, gate.input_bias.shape
        ((5, 5), (5,))
        >>> net = net.replace(weights=gate.replace(input_bias=jnp.ones(5)).weights)
        >>> net.params.layer(1).gate("z").input_bias.tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    weights: tuple[Weights, ...]
    directions: tuple[str, ...] = ("forward",)

    @property
    def size(self) -> int:
        """How many numbers there are, which is the length of the packed vector."""
        return sum(a.size for w in self.weights for a in w if a is not None)

    def layer(self, index: int, direction: str | None = None) -> Layer:
        """The weights of a layer in one direction.

        Args:
          index: of the layer, from 0.
          direction: "forward" or "reverse"; may be None where there is one.

        Returns:
          The `Layer`.

        Raises:
          IndexError: there is no such layer.
          ValueError: there is no such direction, or there are two to choose from.
        """
        count = len(self.weights) // len(self.directions)
        if not 0 <= index < count:
            raise IndexError(f"Parameters.layer: index must be below {count}, got {index}.")
        if direction is None and len(self.directions) == 1:
            direction = self.directions[0]
        if direction not in self.directions:
            raise ValueError(
                f"Parameters.layer: direction must be one of {self.directions}, got {direction!r}."
            )
        return Layer(self, index * len(self.directions) + self.directions.index(direction))


class Layer(NamedTuple):
    """A layer of `Parameters` in one direction.

    Args:
      params: all parameters.
      position: which of `params.weights`.
    """

    params: Parameters
    position: int

    @property
    def weights(self) -> Weights:
        """All gates side by side."""
        return self.params.weights[self.position]

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates, in the order in which they stand in `weights`."""
        return GATES[gate_count(self.weights)]

    def gate(self, name: str) -> Gate:
        """What one gate has learned.

        Args:
          name: of an LSTM "i", "f", "g" or "o" (input, forget, candidate, output), of a GRU "r",
            "z" or "n" (reset, update, candidate), of a plain network "h".

        Returns:
          The `Gate`.

        Raises:
          ValueError: there is no such gate.
        """
        if name not in self.gates:
            raise ValueError(f"Layer.gate: name must be one of {self.gates}, got {name!r}.")
        return Gate(self, name)

    def replace(self, **changes: ArrayLike | None) -> Parameters:
        """All parameters, with fields of this layer's `Weights` replaced.

        Args:
          changes: arrays by the names of fields.

        Returns:
          New `Parameters`.

        Raises:
          TypeError: there is no such field.
          ValueError: an array of another shape.
        """
        new: Any = self.weights
        for field, value in changes.items():
            if field not in Weights._fields:
                raise TypeError(f"Layer.replace: Weights has no field {field!r}.")
            old = getattr(new, field)
            array = None if value is None else _like("Layer.replace", field, value, old)
            new = new._replace(**{field: array})
        weights = list(self.params.weights)
        weights[self.position] = new
        return self.params._replace(weights=tuple(weights))


class Gate(NamedTuple):
    """A gate of a `Layer`, m features wide.

    Args:
      layer: that has it.
      name: of the gate.
    """

    layer: Layer
    name: str

    @property
    def input_kernel(self) -> Array | None:
        """Of shape `(n, m)`, or None."""
        return self._part("input_kernel")

    @property
    def hidden_kernel(self) -> Array | None:
        """Of shape `(p, m)`."""
        return self._part("hidden_kernel")

    @property
    def input_bias(self) -> Array | None:
        """Of shape `(m,)`, or None."""
        return self._part("input_bias")

    @property
    def hidden_bias(self) -> Array | None:
        """Of shape `(m,)`, or None."""
        return self._part("hidden_bias")

    @property
    def peephole(self) -> Array | None:
        """What the memory adds, of shape `(m,)`, or None."""
        return self._part("peepholes") if self.name in PEEPHOLES else None

    def replace(self, **changes: ArrayLike) -> Parameters:
        """All parameters, with parts of this gate replaced.

        Args:
          changes: arrays by the names of this class's properties.

        Returns:
          New `Parameters`.

        Raises:
          TypeError: this gate has no such part.
          ValueError: an array of another shape.
        """
        new = {}
        for part, value in changes.items():
            if part not in (*PARTS, "peephole") or getattr(self, part) is None:
                raise TypeError(f"Gate.replace: gate {self.name!r} has no {part!r}.")
            field = "peepholes" if part == "peephole" else part
            array = _like("Gate.replace", part, value, getattr(self, part))
            whole = getattr(self.layer.weights, field)
            new[field] = jnp.asarray(whole).at[..., self._columns(field)].set(array)
        return self.layer.replace(**new)

    def place(self, part: str) -> Place:
        """Where a part of this gate lies in the vector that `pack` makes.

        Args:
          part: "input_kernel", "hidden_kernel", "input_bias", "hidden_bias" or "peephole".

        Returns:
          Its offset in elements, and its shape there: kernels are transposed, `(m, n)`.

        Raises:
          TypeError: this gate has no such part.
        """
        field = "peepholes" if part == "peephole" else part
        found = _places(self.layer.params).get((self.layer.position, field, self.name))
        if found is None:
            raise TypeError(f"Gate.place: gate {self.name!r} has no {part!r}.")
        return found

    def _part(self, field: str) -> Array | None:
        whole = getattr(self.layer.weights, field)
        return None if whole is None else whole[..., self._columns(field)]

    def _columns(self, field: str) -> slice:
        names = PEEPHOLES if field == "peepholes" else self.layer.gates
        m = self.layer.weights.hidden_kernel.shape[1] // len(self.layer.gates)
        start = names.index(self.name) * m
        return slice(start, start + m)


def _like(name: str, part: str, value: ArrayLike, old: Array | None) -> Array:
    array = as_array(name, value)
    if old is not None and array.shape != old.shape:
        raise ValueError(f"{name}: {part} must have shape {old.shape}, got {array.shape}.")
    return array if old is None else array.astype(old.dtype)


def _places(params: Parameters) -> dict[tuple[int, str, str], Place]:
    """Where everything lies in a packed vector, in the order in which it lies there."""
    out: dict[tuple[int, str, str], Place] = {}
    end = 0
    directions = len(params.directions)

    def put(position: int, field: str, name: str, shape: tuple[int, ...]) -> None:
        nonlocal end
        out[position, field, name] = Place(end, shape)
        end += math.prod(shape)

    def each(fields: Sequence[str]) -> None:
        for first in range(0, len(params.weights), directions):
            for field in fields:
                for position in range(first, first + directions):
                    weights = params.weights[position]
                    array, gates = getattr(weights, field), gate_count(weights)
                    if array is None:
                        continue
                    m = weights.hidden_kernel.shape[1] // gates
                    for name in PEEPHOLES if field == "peepholes" else PACKED[gates]:
                        put(position, field, name, (m, *array.shape[:-1]))

    each(PARTS[:2])
    each(PARTS[2:])
    each(["peepholes"])
    for position, weights in enumerate(params.weights):
        if weights.projection is not None:
            put(position, "projection", "", weights.projection.shape[::-1])
    return out


def _checked(name: str, params: Any) -> Parameters:
    if not isinstance(params, Parameters):
        raise TypeError(f"{name}: params must be Parameters, got {params!r}.")
    return params


def pack(params: Parameters) -> Array:
    """All weights in one vector, in the order of MIOpen.

    Kernels of all layers come first, then all biases, then peepholes and projections, which MIOpen
    does not have. Of each layer: for the input, those of the forward direction, those of the
    reverse one; then for the hidden state. Of each of these the gates: input, forget, output,
    candidate of an LSTM, update, reset, candidate of a GRU. Each kernel is stored with a row for
    each hidden feature. `gate(name).place(part)` says where something lies.

    Args:
      params: parameters, as `module.params` gives them.

    Returns:
      An array of shape `(params.size,)`.

    Raises:
      TypeError: `params` are no `Parameters`.

        >>> net = rnn.LSTM(3, 5, key=amdjax.random.key(0))
        >>> rnn.pack(net.params).shape
        (200,)
        >>> net.params.layer(0).gate("f").place("hidden_kernel")
        Place(offset=85, shape=(5, 5))
    """
    parts = []
    for position, field, name in _places(_checked("pack", params)):
        layer = Layer(params, position)
        whole = field == "projection"
        array = layer.weights.projection if whole else Gate(layer, name)._part(field)
        assert array is not None
        parts.append(jnp.ravel(jnp.transpose(array)))
    return jnp.concatenate(parts)


def unpack(params: Parameters, vector: ArrayLike) -> Parameters:
    """The weights that a packed vector holds.

    Args:
      params: parameters of the same form, whose values do not matter.
      vector: of shape `(params.size,)`, in the order of `pack`.

    Returns:
      New `Parameters`, for `module.replace(weights=...)`.

    Raises:
      TypeError: `params` are no `Parameters`.
      ValueError: the vector has another size.

        >>> params = rnn.RNN(1, 1, use_bias=False, key=amdjax.random.key(0)).params
        >>> rnn.unpack(params, jnp.array([2.0, 3.0])).layer(0).gate("h").hidden_kernel
        Array([[3.]], dtype=float32)
    """
    params = _checked("unpack", params)
    vector = as_array("unpack", vector, 1)
    if vector.shape != (params.size,):
        raise ValueError(f"unpack: vector must have shape {(params.size,)}, got {vector.shape}.")
    found: dict[tuple[int, str], dict[str, Array]] = {}
    for (position, field, name), place in _places(params).items():
        part = vector[place.offset : place.offset + math.prod(place.shape)]
        array = jnp.transpose(part.reshape(place.shape))
        found.setdefault((position, field), {})[name] = array
    for (position, field), parts in found.items():
        layer = Layer(params, position)
        names = {"peepholes": PEEPHOLES, "projection": ("",)}.get(field, layer.gates)
        whole = jnp.concatenate([parts[name] for name in names], axis=-1)
        params = layer.replace(**{field: whole})
    return params


_TORCH = {
    "input_kernel": "weight_ih", "hidden_kernel": "weight_hh", "input_bias": "bias_ih",
    "hidden_bias": "bias_hh", "projection": "weight_hr",
}  # fmt: skip


def _torch_names(name: str, module: Any) -> dict[str, tuple[int | None, str]]:
    """Names in PyTorch's state dict: of which weights they are which field."""
    cell = isinstance(getattr(module, "weights", None), Weights)
    if not cell and not isinstance(getattr(module, "params", None), Parameters):
        raise TypeError(f"{name}: module must be a recurrent module, got {module!r}.")
    if not cell and module.reverse:
        raise ValueError(f"{name}: PyTorch has no layers that go in reverse alone.")
    out: dict[str, tuple[int | None, str]] = {}
    for position, weights in enumerate([module.weights] if cell else module.weights):
        if weights.input_kernel is None or weights.peepholes is not None:
            raise ValueError(f"{name}: PyTorch has neither peepholes nor input_mode='skip'.")
        layer, direction = divmod(position, 1 if cell else len(module.params.directions))
        suffix = "" if cell else f"_l{layer}" + ("_reverse" if direction else "")
        for field, torch_name in _TORCH.items():
            if getattr(weights, field) is not None:
                out[torch_name + suffix] = (None if cell else position), field
    return out


def from_torch(module: M, state_dict: Mapping[str, Any]) -> M:
    """A recurrent module with the weights of PyTorch's `LSTM`, `GRU`, `RNN` or a cell of theirs.

    The gates have the same order and meaning on both sides; kernels are transposed.

    Args:
      module: of the same form, whose weights do not matter.
      state_dict: arrays by PyTorch's names, such as `weight_ih_l0_reverse`.

    Returns:
      The module with these weights, in its own dtype.

    Raises:
      TypeError: for no recurrent module, or no mapping.
      ValueError: names or shapes differ, or PyTorch has no such module.

        >>> net = rnn.GRU(3, 5, key=amdjax.random.key(0))
        >>> again = rnn.from_torch(net, rnn.to_torch(net))
        >>> bool((again.weights[0].hidden_kernel == net.weights[0].hidden_kernel).all())
        True
    """
    names = _torch_names("from_torch", module)
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"from_torch: state_dict must be a mapping, got {state_dict!r}.")
    if names.keys() != state_dict.keys():
        differing = sorted(names.keys() ^ state_dict.keys())
        raise ValueError(f"from_torch: state_dict and module differ in {', '.join(differing)}.")
    target: Any = module
    cell = isinstance(target.weights, Weights)
    weights = [target.weights] if cell else list(target.weights)
    for name, (position, field) in names.items():
        i = position or 0
        array = np.asarray(state_dict[name]).T
        weights[i] = weights[i]._replace(
            **{field: _like("from_torch", name, array, getattr(weights[i], field))}
        )
    return target.replace(weights=weights[0] if cell else tuple(weights))


def to_torch(module: Any) -> dict[str, np.ndarray]:
    """The weights of a recurrent module under PyTorch's names.

    Args:
      module: an `LSTM`, `GRU`, `RNN` or a cell of theirs.

    Returns:
      NumPy arrays by name, as PyTorch's `load_state_dict` takes them once they are tensors.

    Raises:
      TypeError: for no recurrent module.
      ValueError: PyTorch has no such module.

        >>> state = rnn.to_torch(rnn.GRUCell(3, 5, key=amdjax.random.key(0)))
        >>> {name: array.shape for name, array in state.items()}["weight_ih"]
        (15, 3)
    """
    names, cell = _torch_names("to_torch", module), isinstance(module.weights, Weights)
    out = {}
    for name, (position, field) in names.items():
        weights = module.weights if cell else module.weights[position]
        out[name] = np.ascontiguousarray(np.asarray(getattr(weights, field)).T)
    return out
