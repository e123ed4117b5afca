"""Protobuf messages of TensorFlow's files, described at run time by the numbers of their fields.

Only the fields that are read are described; others are skipped, as protobuf does with fields it
does not know. The messages have a pool of their own, so that TensorFlow may be loaded in the same
process.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from .errors import TensorFlowError

#: For each message its fields: name, type and number. `*` repeats, `map` has keys that are texts.
MESSAGES = {
    "Dim": "size int64 1, name string 2",
    "TensorShape": "dim *Dim 2, unknown_rank bool 3",
    "Tensor": (
        "dtype DataType 1, tensor_shape TensorShape 2, tensor_content bytes 4, half_val *int32 13, "
        "float_val *float 5, double_val *double 6, int_val *int32 7, string_val *bytes 8, "
        "scomplex_val *float 9, int64_val *int64 10, bool_val *bool 11, dcomplex_val *double 12, "
        "uint32_val *uint32 16, uint64_val *uint64 17, float8_val bytes 18"
    ),
    "ListValue": (
        "s *bytes 2, i *int64 3, f *float 4, b *bool 5, type *DataType 6, shape *TensorShape 7, "
        "tensor *Tensor 8, func *NameAttrList 9"
    ),
    "NameAttrList": "name string 1, attr map:AttrValue 2",
    "AttrValue": (
        "list ListValue 1, s bytes 2, i int64 3, f float 4, b bool 5, type DataType 6, "
        "shape TensorShape 7, tensor Tensor 8, placeholder string 9, func NameAttrList 10"
    ),
    "Node": "name string 1, op string 2, input *string 3, device string 4, attr map:AttrValue 5",
    "Version": "producer int32 1, min_consumer int32 2",
    "Arg": "name string 1, type DataType 3, number_attr string 5, type_list_attr string 6",
    "Op": "name string 1, input_arg *Arg 2, output_arg *Arg 3",
    "Function": "signature Op 1, node_def *Node 3, ret map:string 4, attr map:AttrValue 5",
    "Library": "function *Function 1",
    "Graph": "node *Node 1, library Library 2, version int32 3, versions Version 4",
    "MetaInfo": "meta_graph_version string 1, tags *string 4, tensorflow_version string 5",
    "TensorInfo": "name string 1, dtype DataType 2, tensor_shape TensorShape 3",
    "Signature": "inputs map:TensorInfo 1, outputs map:TensorInfo 2, method_name string 3",
    "Saver": "filename_tensor_name string 1, save_tensor_name string 2, restore_op_name string 3",
    "MetaGraph": (
        "meta_info_def MetaInfo 1, graph_def Graph 2, saver_def Saver 3, "
        "signature_def map:Signature 5"
    ),
    "SavedModel": "saved_model_schema_version int64 1, meta_graphs *MetaGraph 2",
    "BundleHeader": "num_shards int32 1, endianness int32 2, version Version 3",
    "Slice": "dummy int32 1",
    "BundleEntry": (
        "dtype DataType 1, shape TensorShape 2, shard_id int32 3, offset int64 4, size int64 5, "
        "crc32c fixed32 6, slices *Slice 7"
    ),
}  # fmt: skip

#: Numbers of dtypes have names in files that are texts.
_DTYPE_NAMES = (
    "INVALID", "FLOAT", "DOUBLE", "INT32", "UINT8", "INT16", "INT8", "STRING", "COMPLEX64", "INT64",
    "BOOL", "QINT8", "QUINT8", "QINT32", "BFLOAT16", "QINT16", "QUINT16", "UINT16", "COMPLEX128",
    "HALF", "RESOURCE", "VARIANT", "UINT32", "UINT64", "FLOAT8_E5M2", "FLOAT8_E4M3FN",
)  # fmt: skip
#: What files that are texts begin with.
_TEXT = (b"node", b"library", b"versions", b"saved_model_schema_version", b"meta_graphs", b"#")

#: Of `AttrValue`, fields of which only one is there.
_ONE_OF = ("s", "i", "f", "b", "type", "shape", "tensor", "list", "func", "placeholder")
_PACKAGE = "amdjax_tf"


@cache
def messages() -> SimpleNamespace:
    """The classes of messages, by their names in `MESSAGES`.

    Raises:
      ImportError: protobuf is not installed; the message says how to install it.
    """
    try:
        # late: it may be missing
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as e:
        raise ImportError("amdjax.tf needs protobuf: pip install 'amdjax[tf]'") from e
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AttrValue":
            message.oneof_decl.add(name="value")
        for field in fields.split(", "):
            _describe(message, *field.split(" "))
    enum = file.enum_type.add(name="DataType")
    for number, name in enumerate(_DTYPE_NAMES):
        enum.value.add(name=f"DT_{name}", number=number)
        if number:
            enum.value.add(name=f"DT_{name}_REF", number=number + 100)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in MESSAGES
    }
    return SimpleNamespace(**found)


def parse(kind: str, data: bytes, what: str) -> Any:
    """A message read from its bytes.

    Args:
      kind: its name in `MESSAGES`.
      data: the bytes; those of a text if they begin like one.
      what: they are, for errors.

    Raises:
      TensorFlowError: they are no such message.
    """
    message = getattr(messages(), kind)()
    try:
        if is_text(data):
            # late: with protobuf
            from google.protobuf import text_format

            text_format.Parse(data.decode(), message, allow_unknown_field=True)
        else:
            message.ParseFromString(data)
    except Exception as e:  # of protobuf, whose classes differ by implementation
        raise TensorFlowError(f"{what}: truncated, damaged, or no such file ({e})") from None
    return message


def is_text(data: bytes) -> bool:
    """Whether a file is a message as text."""
    return data[:64].lstrip().startswith(_TEXT)


def _describe(message: Any, name: str, kind: str, number: str) -> None:
    """Add the field to the description of a message."""
    field = message.field.add(name=name, number=int(number))
    is_repeated = kind.startswith(("*", "map:"))
    field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
    if kind.startswith("map:"):
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _describe(entry, "key", "string", "1")
        _describe(entry, "value", kind[4:], "2")
        field.type, field.type_name = (
            field.TYPE_MESSAGE,
            f".{_PACKAGE}.{message.name}.{entry.name}",
        )
        return
    kind = kind.removeprefix("*")
    if kind in MESSAGES:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    elif kind == "DataType":
        field.type, field.type_name = field.TYPE_ENUM, f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if message.name == "AttrValue" and name in _ONE_OF:
        field.oneof_index = 0
