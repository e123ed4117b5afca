"""Lists of arrays of one shape, by which loops read and write a step at a time: one array each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dtypes import canonicalize_dtype

from ..nodes import Node
from ..registry import host_array, rule, size as number, to_device


@dataclass(frozen=True)
class Reserved:
    """A list that nothing was written to: how many elements it has, of which dtype."""

    count: Any
    dtype: np.dtype


@rule("TensorListFromTensor", numbers=("element_shape",))
def from_tensor(node: Node, tensor: Any, element_shape: Any) -> Any:
    if not tensor.ndim:
        raise node.error("the tensor must have one axis at least")
    return tensor


@rule("TensorListReserve", numbers=("element_shape", "num_elements"))
def reserve(node: Node, element_shape: Any, num_elements: Any) -> Any:
    """The shape of elements, of which the file may say little, is that of the first one written."""
    count = number(node, "num_elements", num_elements)
    if isinstance(count, int) and not 0 <= count < 2**31:
        raise node.error(f"num_elements must be a size, got {count}")
    return Reserved(count, canonicalize_dtype(node.dtype("element_dtype")))


@rule("TensorListSetItem", only_device=True)
def set_item(node: Node, input_handle: Any, index: Any, item: Any) -> Any:
    if isinstance(input_handle, Reserved):
        input_handle = jnp.zeros((input_handle.count, *item.shape), input_handle.dtype)
    return lax.dynamic_update_index_in_dim(input_handle, item, index, 0)


@rule("TensorListGetItem", numbers=("element_shape",), only_device=True)
def get_item(node: Node, input_handle: Any, index: Any, element_shape: Any) -> Any:
    _check_written(node, input_handle)
    return lax.dynamic_index_in_dim(input_handle, index, 0, keepdims=False)


@rule("TensorListStack", numbers=("element_shape",))
def stack(node: Node, input_handle: Any, element_shape: Any) -> Any:
    _check_written(node, input_handle)
    return input_handle


@rule("TensorListLength", mixed=True)
def length(node: Node, input_handle: Any) -> Any:
    if isinstance(input_handle, Reserved):
        return input_handle.count
    return input_handle.shape[0]


# Arrays of old loops: what is in them flows from each operation to the next, beside a handle.


@rule("TensorArrayV3", numbers=("size",))
def tensor_array(node: Node, size: Any) -> Any:
    count = number(node, "size", size)
    return np.int32(0), Reserved(count, canonicalize_dtype(node.dtype("dtype")))


@rule("TensorArrayWriteV3", mixed=True)
def write(node: Node, handle: Any, index: Any, value: Any, flow_in: Any) -> Any:
    return set_item(node, flow_in, to_device(index), to_device(value))


@rule("TensorArrayReadV3", mixed=True)
def read(node: Node, handle: Any, index: Any, flow_in: Any) -> Any:
    return get_item(node, flow_in, to_device(index), None)


@rule("TensorArrayScatterV3", mixed=True)
def scatter(node: Node, handle: Any, indices: Any, value: Any, flow_in: Any) -> Any:
    value = to_device(value)
    if isinstance(flow_in, Reserved):
        flow_in = jnp.zeros((flow_in.count, *value.shape[1:]), flow_in.dtype)
    return flow_in.at[to_device(indices)].set(value)


@rule("TensorArrayGatherV3", mixed=True)
def gather(node: Node, handle: Any, indices: Any, flow_in: Any) -> Any:
    _check_written(node, flow_in)
    return jnp.take(flow_in, to_device(indices), axis=0)


@rule("TensorArraySizeV3", mixed=True)
def array_size(node: Node, handle: Any, flow_in: Any) -> Any:
    return host_array(length(node, flow_in))


@rule("TensorArrayCloseV3", mixed=True)
def close(node: Node, handle: Any) -> Any:
    return ()


def _check_written(node: Node, value: Any) -> None:
    if isinstance(value, Reserved):
        raise node.error("nothing was written to the list")
