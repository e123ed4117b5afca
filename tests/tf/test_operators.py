"""Each operator against NumPy and the formulas of TensorFlow's documentation."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from numpy import float32 as f32, int32 as i32, int64 as i64

from amdjax import tf
from tests.support.tf_graphs import Builder, Shape, attribute, messages

rng = np.random.default_rng(7)
X = rng.normal(size=(2, 3)).astype(f32)
Y = rng.normal(size=(2, 3)).astype(f32)
P = np.abs(X) + f32(0.1)
I = np.array([[7, -7, 3], [-3, 0, 5]], i32)
J = np.array([[2, 2, -2], [2, 3, -5]], i32)
B = X > 0
C = Y > 0


def numbers(*values):
    return np.array(values, i32)


class Case:
    """An operator, its inputs,
    attributes and results; `given` says which inputs are no constants."""

    def __init__(self, op, inputs, result, given=None, **attributes):
        self.op, self.attributes = op, attributes
        self.inputs = [np.asarray(v) for v in inputs]
        self.results = result if isinstance(result, tuple) else (result,)
        self.given = range(len(inputs)) if given is None else given
        self.tolerance = attributes.pop("error", 2e-6)


def unary(op, function, x=X, **attributes):
    return Case(op, [x], function(x), **attributes)


def binary(op, function, x=X, y=Y, **attributes):
    return Case(op, [x, y], function(x, y), **attributes)


def trunc(x, y):
    return np.trunc(x / y).astype(x.dtype)


INNER = (P / 5).astype(f32)  # within (-1, 1)

ELEMENTWISE = [
    unary("Abs", np.abs), unary("Neg", np.negative), unary("Sign", np.sign),
    unary("Acos", np.arccos, INNER), unary("Acosh", np.arccosh, P + 1),
    unary("Asin", np.arcsin, INNER), unary("Asinh", np.arcsinh), unary("Atan", np.arctan),
    unary("Atanh", np.arctanh, INNER), unary("Ceil", np.ceil), unary("Floor", np.floor),
    unary("Cos", np.cos), unary("Cosh", np.cosh), unary("Sin", np.sin), unary("Sinh", np.sinh),
    unary("Tan", np.tan), unary("Tanh", np.tanh), unary("Exp", np.exp), unary("Expm1", np.expm1),
    unary("Log", np.log, P), unary("Log1p", np.log1p, P), unary("Sqrt", np.sqrt, P),
    unary("Rsqrt", lambda x: 1 / np.sqrt(x), P), unary("Square", np.square),
    unary("Reciprocal", lambda x: 1 / x, P), unary("Inv", lambda x: 1 / x, P),
    unary("Rint", np.rint, X * 3), unary("Round", np.rint, f32([0.5, 1.5, -2.5, 2.6])),
    unary("Round", lambda x: x, I), unary("Invert", np.invert, I),
    unary("IsFinite", np.isfinite, f32([1, np.inf, np.nan])),
    unary("IsInf", np.isinf, f32([1, -np.inf, np.nan])),
    unary("IsNan", np.isnan, f32([1, np.inf, np.nan])),
    unary("LogicalNot", np.logical_not, B), unary("Conj", np.conj, X + 1j * Y),
    unary("Real", np.real, X + 1j * Y), unary("Imag", np.imag, X + 1j * Y),
    unary("Erf", np.vectorize(math.erf)), unary("Erfc", np.vectorize(math.erfc)),
    unary("Lgamma", np.vectorize(math.lgamma), P, error=1e-5),
    Case("Digamma", [f32([1, 2])], f32([-0.5772157, 0.42278433])),
    Case("Erfinv", [f32([0, 0.8427008])], f32([0, 1]), error=1e-5),
    Case("Ndtri", [f32([0.5, 0.8413447])], f32([0, 1]), error=1e-5),
    binary("Add", np.add), binary("AddV2", np.add, X, Y[0]), binary("Sub", np.subtract),
    binary("Mul", np.multiply), binary("Atan2", np.arctan2), binary("Pow", np.power, P, Y),
    binary("Maximum", np.maximum), binary("Minimum", np.minimum),
    binary("Maximum", np.maximum, I, J),
    binary("SquaredDifference", lambda x, y: (x - y) ** 2),
    binary("RealDiv", np.divide), binary("Div", np.divide), binary("Div", trunc, I, J),
    binary("TruncateDiv", trunc, I, J), binary("Mod", np.fmod, I, J), binary("Mod", np.fmod),
    binary("TruncateMod", np.fmod, I, J), binary("FloorDiv", np.floor_divide, I, J),
    binary("FloorDiv", np.floor_divide), binary("FloorMod", np.mod, I, J),
    binary("FloorMod", np.mod, error=1e-5),
    Case("DivNoNan", [f32([1, 2, 0]), f32([2, 0, 0])], f32([0.5, 0, 0])),
    Case("MulNoNan", [f32([np.nan, 2]), f32([0, 3])], f32([0, 6])),
    Case("Xlogy", [f32([0, 2]), f32([0, 3])], f32([0, 2 * np.log(3)])),
    Case("Xlog1py", [f32([0, 2]), f32([-1, 3])], f32([0, 2 * np.log(4)])),
    Case("Xdivy", [f32([0, 2]), f32([0, 4])], f32([0, 0.5])),
    binary("Equal", np.equal, I, J), binary("NotEqual", np.not_equal, I, J),
    binary("Less", np.less), binary("LessEqual", np.less_equal, I, J),
    binary("Greater", np.greater), binary("GreaterEqual", np.greater_equal, I, J),
    binary("LogicalAnd", np.logical_and, B, C), binary("LogicalOr", np.logical_or, B, C),
    binary("BitwiseAnd", np.bitwise_and, I, J), binary("BitwiseOr", np.bitwise_or, I, J),
    binary("BitwiseXor", np.bitwise_xor, I, J),
    binary("LeftShift", np.left_shift, np.abs(I), np.abs(J)),
    binary("RightShift", np.right_shift, I, np.abs(J)),
    Case("AddN", [X, Y, X], X + Y + X),
    Case("ClipByValue", [X, f32(-0.5), f32(0.5)], np.clip(X, -0.5, 0.5)),
    unary("Cast", lambda x: x.astype(i32), X * 3, DstT=i32),
    unary("Cast", lambda x: x.astype(f32), I, DstT=f32),
    unary("Cast", lambda x: x.astype(bool), I, DstT=bool),
    unary("Bitcast", lambda x: x.view(i32), X, type=i32),
    Case("ApproximateEqual", [f32([1, 2]), f32([1.01, 2.2])], np.array([True, False]),
         tolerance=0.1),
]  # fmt: skip


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
LABELS = softmax(Y)
ACTIVATIONS = [
    unary("Relu", lambda x: np.maximum(x, 0)),
    unary("Relu6", lambda x: np.clip(x, 0, 6), X * 5),
    unary("Elu", lambda x: np.where(x > 0, x, np.expm1(x))),
    unary("Selu", lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(x))),
    unary("LeakyRelu", lambda x: np.where(x > 0, x, 0.2 * x)),
    unary("LeakyRelu", lambda x: np.where(x > 0, x, 0.1 * x), alpha=0.1),
    unary("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    unary("Softplus", lambda x: np.log1p(np.exp(x))),
    unary("Softsign", lambda x: x / (1 + np.abs(x))), unary("Softmax", softmax),
    unary("LogSoftmax", lambda x: np.log(softmax(x))), unary("L2Loss", lambda x: (x * x).sum() / 2),
    Case(
        "SoftmaxCrossEntropyWithLogits", [X, LABELS],
        (-(LABELS * np.log(softmax(X))).sum(-1), softmax(X) - LABELS),
    ),
    Case(
        "SparseSoftmaxCrossEntropyWithLogits", [X, numbers(2, 0)],
        (-np.log(softmax(X))[[0, 1], [2, 0]], softmax(X) - np.eye(3)[[2, 0]]),
    ),
]  # fmt: skip

M = rng.normal(size=(2, 3, 4)).astype(f32)
N = rng.normal(size=(2, 4, 5)).astype(f32)
IMAGES = rng.normal(size=(2, 3, 4, 5)).astype(f32)
PRODUCTS = [
    Case("MatMul", [X, Y.T], X @ Y.T), Case("MatMul", [X, Y], X @ Y.T, transpose_b=True),
    Case("MatMul", [X, Y], X.T @ Y, transpose_a=True),
    Case("BatchMatMul", [M, N], M @ N), Case("BatchMatMulV2", [M, N[0]], M @ N[0]),
    Case("BatchMatMulV2", [M, M], M @ M.swapaxes(1, 2), adj_y=True),
    Case("BatchMatMulV2", [M, M], M.swapaxes(1, 2) @ M, adj_x=True),
    Case("BatchMatMulV2", [X + 1j * Y, X + 0j], (X - 1j * Y).T @ X, adj_x=True),
    Case("BatchMatMulV3", [np.int8([[1, 2]]), np.int8([[100], [100]])], i32([[300]]), Tout=i32),
    Case("Einsum", [M, N], np.einsum("bij,bjk->bik", M, N), equation="bij,bjk->bik"),
    Case("Einsum", [M, N[0]], np.einsum("...j,jk->...k", M, N[0]), equation="...j,jk->...k"),
    Case("BiasAdd", [X, Y[0]], X + Y[0]),
    Case("BiasAdd", [IMAGES, Y[0]], IMAGES + Y[0][:, None, None], data_format="NCHW"),
    Case("BiasAddV1", [X, Y[0]], X + Y[0]),
]  # fmt: skip


def along(op, function, x=X, axis=1, **attributes):
    return Case(op, [x, numbers(axis).reshape(())], function, given=[0], **attributes)


CUM = np.arange(1, 7).reshape(2, 3).astype(i32)
REDUCTIONS = [
    along("Sum", X.sum(1)), Case("Sum", [X, numbers(0, 1)], X.sum(), given=[0]),
    along("Sum", X.sum(1, keepdims=True), axis=-1, keep_dims=True),
    Case("Sum", [X, numbers()], X, given=[0]),
    Case("Sum", [I, numbers(0)], I.sum(0, dtype=i32), given=[0]),
    along("Prod", X.prod(1)), along("Max", X.max(1)), along("Min", X.min(1)),
    along("Mean", X.mean(1)), along("Mean", i32([1, 0]), I), along("All", B.all(1), B),
    along("Any", B.any(1), B), along("EuclideanNorm", np.sqrt((X * X).sum(1))),
    along("ArgMax", X.argmax(1)), along("ArgMin", X.argmin(1).astype(i32), output_type=i32),
    along("Cumsum", np.cumsum(CUM, 1), CUM), along("Cumprod", np.cumprod(CUM, 1), CUM),
    along("Cumsum", i32([[0, 1, 3], [0, 4, 9]]), CUM, exclusive=True),
    along("Cumsum", i32([[6, 5, 3], [15, 11, 6]]), CUM, reverse=True),
    along("Cumsum", i32([[5, 3, 0], [11, 6, 0]]), CUM, reverse=True, exclusive=True),
    along("Cumprod", i32([[1, 1, 2], [1, 4, 20]]), CUM, exclusive=True),
    Case("TopKV2", [f32([1, 3, 3, 2]), i32(2)], (f32([3, 3]), i32([1, 2])), given=[0]),
    Case("TopK", [f32([1, 3, 3, 2])], (f32([3, 3]), i32([1, 2])), k=2),
    Case("InTopKV2", [f32([[1, 2, 3], [3, 2, 1]]), numbers(1, 2), i32(2)], np.array([True, False]),
        given=[0, 1]),
]  # fmt: skip

BLOCK = np.arange(1, 17, dtype=f32).reshape(1, 4, 4, 1)
SHAPES = [
    Case("Shape", [M], numbers(2, 3, 4)), Case("Shape", [M], i64([2, 3, 4]), out_type=i64),
    Case("Shape", [f32(1)], numbers()), Case("ShapeN", [X, M], (numbers(2, 3), numbers(2, 3, 4))),
    Case("Size", [M], i32(24)), Case("Rank", [M], i32(3)),
    Case("Reshape", [X, numbers(3, -1)], X.reshape(3, 2), given=[0]),
    Case("Reshape", [I, numbers(-1)], I.ravel(), given=[0]),
    Case("ExpandDims", [X, i32(-1)], X[..., None], given=[0]),
    Case("Squeeze", [X[None, :, None]], X),
    Case("Squeeze", [X[None, :, None]], X[None], squeeze_dims=[2]),
    Case("Transpose", [M, numbers(2, 0, 1)], M.transpose(2, 0, 1), given=[0]),
    Case("ConjugateTranspose", [X + 1j * Y, numbers(1, 0)], (X - 1j * Y).T, given=[0]),
    Case("InvertPermutation", [numbers(2, 0, 1)], numbers(1, 2, 0), given=[]),
    Case("BroadcastTo", [X, numbers(4, 2, 3)], np.broadcast_to(X, (4, 2, 3)), given=[0]),
    Case("BroadcastArgs", [numbers(2, 1), numbers(3)], numbers(2, 3), given=[]),
    Case("Fill", [numbers(2, 3), f32(5)], np.full((2, 3), f32(5)), given=[1]),
    Case("Fill", [numbers(70, 70), i32(5)], np.full((70, 70), i32(5)), given=[]),
    Case("Zeros", [numbers(2)], np.zeros(2, f32), given=[], dtype=f32),
    Case("Empty", [numbers(2)], np.zeros(2, f32), given=[], dtype=f32),
    Case("ZerosLike", [X], np.zeros_like(X)), Case("OnesLike", [I], np.ones_like(I)),
    Case("Range", [i32(1), i32(8), i32(3)], numbers(1, 4, 7), given=[], Tidx=i32),
    Case("Range", [f32(0), f32(1), f32(0.25)], f32([0, 0.25, 0.5, 0.75]), given=[], Tidx=f32),
    Case("Range", [i32(0), i32(5000), i32(1)], np.arange(5000, dtype=i32), given=[], Tidx=i32),
    Case("LinSpace", [f32(0), f32(1), i32(5)], np.linspace(0, 1, 5, dtype=f32), given=[0, 1]),
    Case("Tile", [X, numbers(2, 3)], np.tile(X, (2, 3)), given=[0]),
    Case("Tile", [I, numbers(1, 2)], np.tile(I, (1, 2)), given=[0]),
    Case("OneHot", [numbers(1, -1, 3), i32(3), f32(5), f32(-1)],
         f32([[-1, 5, -1], [-1, -1, -1], [-1, -1, -1]]), given=[0, 2, 3]),
    Case("OneHot", [numbers(1, 0), i32(3), f32(1), f32(0)], np.eye(3, dtype=f32)[[1, 0]].T,
         given=[0, 2, 3], axis=0),
    Case("Select", [np.array([True, False]), X, Y], np.stack([X[0], Y[1]])),
    Case("Select", [B, X, Y], np.where(B, X, Y)),
    Case("SelectV2", [B, X, f32(2)], np.where(B, X, 2)),
    Case("Where", [np.array([[True, False], [True, True]])], i64([[0, 0], [1, 0], [1, 1]]),
        given=[]),
    Case("MatrixBandPart", [M[0], i32(0), i32(-1)], np.triu(M[0]), given=[0]),
    Case("MatrixBandPart", [M[0], i32(1), i32(1)], np.triu(np.tril(M[0], 1), -1), given=[0]),
    Case("Diag", [f32([1, 2])], np.diag(f32([1, 2]))),
    Case("MatrixDiag", [X], np.stack([np.diag(X[0]), np.diag(X[1])])),
    Case("MatrixDiagPart", [M], np.stack([np.diag(M[0]), np.diag(M[1])])),
    Case("DiagPart", [M[0][:, :3]], np.diag(M[0][:, :3])),
    Case("Pack", [X, Y], np.stack([X, Y])), Case("Pack", [X, Y], np.stack([X, Y], -1), axis=-1),
    Case("Unpack", [X], (X[0], X[1]), num=2), Case("Unpack", [X], tuple(X.T), axis=1, num=3),
    Case("ConcatV2", [X, Y, i32(-1)], np.concatenate([X, Y], 1), given=[0, 1]),
    Case("Concat", [i32(0), X, Y], np.concatenate([X, Y]), given=[1, 2]),
    Case("Split", [i32(1), X], tuple(np.split(X, 3, 1)), given=[1], num_split=3),
    Case("SplitV", [X, numbers(1, -1), i32(1)], (X[:, :1], X[:, 1:]), given=[0]),
    Case("Pad", [X, numbers(1, 0, 2, 3).reshape(2, 2)], np.pad(X, [(1, 0), (2, 3)]), given=[0]),
    Case("Pad", [I, numbers(1, 0, 2, 3).reshape(2, 2)], np.pad(I, [(1, 0), (2, 3)]), given=[0]),
    Case("PadV2", [X, numbers(1, 0, 2, 3).reshape(2, 2), f32(9)],
         np.pad(X, [(1, 0), (2, 3)], constant_values=9), given=[0, 2]),
    Case("MirrorPad", [X, numbers(1, 0, 2, 1).reshape(2, 2)],
         np.pad(X, [(1, 0), (2, 1)], mode="reflect"), given=[0], mode="REFLECT"),
    Case("MirrorPad", [X, numbers(1, 2, 3, 1).reshape(2, 2)],
         np.pad(X, [(1, 2), (3, 1)], mode="symmetric"), given=[0], mode="SYMMETRIC"),
    # from the documentation of the operators
    Case("SpaceToBatchND", [BLOCK, numbers(2, 2), numbers(0, 0, 0, 0).reshape(2, 2)],
         f32([[1, 3, 9, 11], [2, 4, 10, 12], [5, 7, 13, 15], [6, 8, 14, 16]]).reshape(4, 2, 2, 1),
         given=[0]),
    Case("SpaceToBatchND", [BLOCK[:, :1, :3], numbers(1, 2), numbers(0, 0, 1, 0).reshape(2, 2)],
         f32([[0, 2], [1, 3]]).reshape(2, 1, 2, 1), given=[0]),
    Case("BatchToSpaceND", [f32([[1, 3, 9, 11], [2, 4, 10, 12], [5, 7, 13, 15], [6, 8, 14,
        16]]).reshape(4, 2, 2, 1),
         numbers(2, 2), numbers(0, 0, 1, 0).reshape(2, 2)], BLOCK[:, :, 1:], given=[0]),
    Case("SpaceToDepth", [BLOCK], f32([[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15,
        16]]).reshape(1, 2, 2, 4),
         block_size=2),
    Case("DepthToSpace", [f32([[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15,
        16]]).reshape(1, 2, 2, 4)],
         BLOCK, block_size=2),
    Case("SpaceToDepth", [BLOCK.transpose(0, 3, 1, 2)],
         f32([[1, 3, 9, 11], [2, 4, 10, 12], [5, 7, 13, 15], [6, 8, 14, 16]]).reshape(1, 4, 2, 2),
         block_size=2, data_format="NCHW"),
    Case("DepthToSpace", [f32([[1, 3, 9, 11], [2, 4, 10, 12], [5, 7, 13, 15], [6, 8, 14,
        16]]).reshape(1, 4, 2, 2)],
         BLOCK.transpose(0, 3, 1, 2), block_size=2, data_format="NCHW"),
]  # fmt: skip


def strided(x, result, begin, end, strides, **masks):
    inputs = [x, numbers(*begin), numbers(*end), numbers(*strides)]
    return Case("StridedSlice", inputs, result, given=[0], **masks)


SLICES = [
    strided(M, M[0:2, 1:3, ::-1][:, :, 0:2], (0, 1, 3), (2, 3, 1), (1, 1, -1)),
    strided(M, M[:, 1:, :2], (0, 1, 0), (0, 0, 2), (1, 1, 1), begin_mask=1, end_mask=3),
    strided(M, M[:, 2], (0, 2), (0, 3), (1, 1), begin_mask=1, end_mask=1, shrink_axis_mask=2),
    strided(M, M[..., 1], (0, 1), (0, 2), (1, 1), ellipsis_mask=1, shrink_axis_mask=2),
    strided(M, M[None, ..., None], (0, 0, 0), (0, 0, 0), (1, 1, 1), ellipsis_mask=2,
        new_axis_mask=5),
    strided(M, M[0], (0,), (1,), (1,), shrink_axis_mask=1),
    strided(M, M[:, -1], (0, -1), (0, 0), (1, 1), begin_mask=1, end_mask=1, shrink_axis_mask=2),
    strided(M, M[:, 1:100], (0, 1), (0, 100), (1, 1), begin_mask=1, end_mask=1),
    strided(numbers(4, 5, 6), i32(5), (1,), (2,), (1,), shrink_axis_mask=1),
    Case("StridedSlice", [M, numbers(1), numbers(2), numbers(1)], M[1], given=[0, 1, 2],
        shrink_axis_mask=1),
    Case("StridedSlice", [M, numbers(-1), numbers(0), numbers(1)], M[1], given=[0, 1, 2],
        shrink_axis_mask=1),
    Case("Slice", [M, numbers(0, 1, 1), numbers(2, -1, 2)], M[0:2, 1:, 1:3], given=[0]),
    Case("Slice", [M, numbers(0, 1, 1), numbers(2, 1, 2)], M[0:2, 1:2, 1:3], given=[0, 1]),
    Case("ReverseV2", [M, numbers(0, -1)], M[::-1, :, ::-1], given=[0]),
    Case("Roll", [M, numbers(1, -1), numbers(0, 2)], np.roll(M, (1, -1), (0, 2)), given=[0]),
    Case("ReverseSequence", [CUM, numbers(2, 3)], i32([[2, 1, 3], [6, 5, 4]]), seq_dim=1,
        batch_dim=0),
]  # fmt: skip

TABLE = rng.normal(size=(2, 4, 3, 2)).astype(f32)
AT = numbers(1, 3, 0, 2, 1, 1).reshape(2, 3)


def by_batch(table, at, axis):
    return np.stack([np.take(t, a, axis=axis - 1) for t, a in zip(table, at)])


GATHERING = [
    Case("GatherV2", [M, numbers(2, 0), i32(1)], M[:, [2, 0]], given=[0, 1]),
    Case("GatherV2", [M, AT % 2, i32(0)], M[AT % 2], given=[0, 1]),
    Case("GatherV2", [TABLE, AT, i32(1)], by_batch(TABLE, AT, 1), given=[0, 1], batch_dims=1),
    Case("GatherV2", [TABLE, AT % 3, i32(2)], by_batch(TABLE, AT % 3, 2), given=[0, 1],
        batch_dims=1),
    Case("Gather", [M, numbers(1, 0)], M[[1, 0]]),
    Case("ResourceGather", [M, numbers(1, 0)], M[[1, 0]]),
    Case("GatherNd", [M, numbers(1, 2, 0, 1).reshape(2, 2)], M[[1, 0], [2, 1]]),
    Case("GatherNd", [M, numbers(2, 0).reshape(2, 1)], M[[0, 1], [2, 0]], batch_dims=1),
    Case("ScatterNd", [numbers(1, 3, 1).reshape(3, 1), f32([1, 2, 3]), numbers(5)],
         f32([0, 4, 0, 2, 0]), given=[0, 1]),
    Case("TensorScatterUpdate", [f32([1, 1, 1]), numbers(1).reshape(1, 1), f32([5])], f32([1, 5,
        1])),
    Case("TensorScatterAdd", [f32([1, 1, 1]), numbers(1).reshape(1, 1), f32([5])], f32([1, 6, 1])),
    Case("TensorScatterSub", [f32([1, 1, 1]), numbers(1).reshape(1, 1), f32([5])], f32([1, -4, 1])),
    Case("TensorScatterMax", [f32([1, 1, 1]), numbers(1).reshape(1, 1), f32([5])], f32([1, 5, 1])),
    Case("TensorScatterMin", [f32([1, 1, 1]), numbers(1).reshape(1, 1), f32([5])], f32([1, 1, 1])),
    Case("UnsortedSegmentSum", [X, numbers(1, -1), i32(3)], np.stack([0 * X[0], X[0], 0 * X[0]]),
        given=[0, 1]),
    Case("Unique", [numbers(5, 2, 5, 1)], (numbers(5, 2, 1), numbers(0, 1, 0, 2)), given=[]),
]  # fmt: skip

IDENTITIES = [
    Case(op, [X], X)
    for op in ("Identity", "Snapshot", "PreventGradient", "CheckNumerics", "ReadVariableOp",
               "RefIdentity", "StopGradient")
] + [
    Case("IdentityN", [X, I], (X, I)), Case("EnsureShape", [X], X, shape=Shape((None, 3))),
]  # fmt: skip

GRID = f32([-1.7, -0.55, 0, 0.26, 2.5])
QUANTIZED = [
    # steps of 0.068: the range becomes -0.544 to 0.476, so that 0 is on the grid
    Case("FakeQuantWithMinMaxVars", [GRID, f32(-0.52), f32(0.5)], 0.068 * f32([-8, -8, 0, 4, 7]),
         num_bits=4),
    Case("FakeQuantWithMinMaxArgs", [GRID], np.round(np.clip(GRID, -6, 6) * 255 / 12) * 12 / 255,
         error=1e-5),
    Case("FakeQuantWithMinMaxArgs", [GRID], f32([-1, -1, 0, 0, 1]), min=-1.0, max=1.0, num_bits=2,
         narrow_range=True),
    Case("FakeQuantWithMinMaxVarsPerChannel", [f32([[1, 1], [9, 9]]), f32([0, 0]), f32([15, 0])],
         f32([[1, 0], [9, 0]]), num_bits=4),
]  # fmt: skip


def texts(*values):
    m = messages()
    return m.AttrValue(list=m.ListValue(s=[v.encode() for v in values]))


CHANNELS = [rng.normal(size=5).astype(f32) for _ in range(3)] + [f32([1, 2, 3, 4, 5])]
POINTWISE = rng.normal(size=(1, 1, 5, 5)).astype(f32)
ONES = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def batch_norm(x):
    scale, offset, mean, variance = CHANNELS
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + offset


FUSED = [
    Case("_FusedMatMul", [X, Y.T, f32([1, -1])], np.maximum(X @ Y.T + f32([1, -1]), 0),
         fused_ops=texts("BiasAdd", "Relu")),
    Case("_FusedMatMul", [X, Y.T, f32([1, -1])], np.tanh(X @ Y.T + f32([1, -1])),
         fused_ops=texts("BiasAdd", "Tanh")),
    Case("_FusedConv2D", [IMAGES, POINTWISE, *CHANNELS],
         np.maximum(batch_norm(IMAGES @ POINTWISE[0, 0]), 0), epsilon=1e-3, error=1e-5,
         fused_ops=texts("FusedBatchNorm", "Relu"), **ONES),
    Case("_FusedConv2D", [IMAGES, POINTWISE, CHANNELS[0], IMAGES],
         IMAGES @ POINTWISE[0, 0] + CHANNELS[0] + IMAGES, fused_ops=texts("BiasAdd", "Add"),
         error=1e-5, **ONES),
    Case("_FusedDepthwiseConv2dNative", [IMAGES, POINTWISE[:, :, :, :1], CHANNELS[0]],
         np.clip(IMAGES * POINTWISE[0, 0, :, 0] + CHANNELS[0], 0, 6),
         fused_ops=texts("BiasAdd", "Relu6"), **ONES),
    Case("BatchNormWithGlobalNormalization",
         [IMAGES, CHANNELS[2], CHANNELS[3], CHANNELS[1], CHANNELS[0]], batch_norm(IMAGES),
         error=1e-5, variance_epsilon=1e-3, scale_after_normalization=True),
]  # fmt: skip

CASES = [
    *ELEMENTWISE, *ACTIVATIONS, *PRODUCTS, *REDUCTIONS, *SHAPES, *SLICES, *GATHERING, *IDENTITIES,
    *QUANTIZED, *FUSED,
]  # fmt: skip
#: Operators that other files test.
ELSEWHERE = {
    "Conv2D", "Conv3D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "MaxPool", "MaxPoolV2",
    "MaxPool3D", "AvgPool", "AvgPool3D", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3",
    "LRN", "ResizeBilinear", "ResizeNearestNeighbor", "If", "StatelessIf", "While",
    "StatelessWhile", "Switch", "RefSwitch", "Merge", "RefMerge", "NoOp", "Assert", "Const",
    "PlaceholderWithDefault", "TensorListFromTensor", "TensorListGetItem", "TensorListLength",
    "TensorListReserve", "TensorListSetItem", "TensorListStack", "Enter", "RefEnter", "Exit",
    "RefExit",
    "NextIteration", "RefNextIteration", "LoopCond", "TensorArrayV3", "TensorArrayWriteV3",
    "TensorArrayReadV3", "TensorArrayScatterV3", "TensorArrayGatherV3", "TensorArraySizeV3",
    "TensorArrayCloseV3", "NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3",
    "NonMaxSuppressionV4", "NonMaxSuppressionV5", "CombinedNonMaxSuppression", "CropAndResize",
}  # fmt: skip


def together(cases, count=16):
    """Cases in groups, each of which is one graph: compiling it takes less than compiling parts."""
    cases = list(cases)
    parts = [cases[i : i + count] for i in range(0, len(cases), count)]
    return [pytest.param(part, id=f"{part[0].op}-{part[-1].op}") for part in parts]


def check(cases, all_constant=False):
    """Compute the cases in one graph, in which some of their inputs are given, others constants."""
    graph, feeds, outputs = Builder(), {}, {}
    for k, case in enumerate(cases):
        names = []
        for i, value in enumerate(case.inputs):
            if i in case.given and not all_constant:
                names.append(graph.input(f"x{k}_{i}", value.shape, value.dtype))
                feeds[names[-1]] = value
            else:
                names.append(graph.typed(value))
        node = graph.op(case.op, *names, name=f"node{k}", **case.attributes)
        outputs.update({f"{node}:{i}": (case, y) for i, y in enumerate(case.results)})
    model = tf.load(graph.bytes(), outputs=list(outputs))
    made = model(**feeds).values()
    for said, result, (case, expected) in zip(model.outputs, made, outputs.values()):
        expected = np.asarray(expected)
        assert said.shape == result.shape == expected.shape, case.op
        assert said.dtype == result.dtype, case.op
        assert result.dtype.kind == expected.dtype.kind, case.op
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(result, expected, case.op)
        else:
            np.testing.assert_allclose(
                result, expected, case.tolerance, case.tolerance, err_msg=case.op
            )


def is_host_case(case):
    """Whether inputs become host arrays where they are constants, so that NumPy may compute."""
    return any(case.inputs[i].dtype.kind in "biu" or not case.inputs[i].ndim for i in case.given)


@pytest.mark.parametrize("cases", together(CASES))
def test_operators(cases):
    check(cases)


@pytest.mark.parametrize("cases", together(filter(is_host_case, CASES)))
def test_operators_of_constants(cases):
    check(cases, all_constant=True)


def test_every_operator_is_tested():
    assert {case.op for case in CASES} | ELSEWHERE == set(tf.operators())


def test_results_of_small_constants_are_known_as_the_graph_is_traced():
    graph = Builder()
    x = graph.input("x", (None, 4, 6))
    shape = graph.op("Shape", x)
    part = graph.op(
        "StridedSlice", shape, graph.const([0]), graph.const([1]), graph.const([1]),
        shrink_axis_mask=1,
    )  # fmt: skip
    product = graph.op("Mul", graph.const(4), graph.const(6))
    graph.op("Reshape", x, graph.op("Pack", part, product), name="y")
    model = tf.load(graph.bytes())
    assert model.outputs[0].shape == ("batch", 24)
    assert model(x=np.zeros((5, 4, 6), f32))["y"].shape == (5, 24)


def test_attribute_messages_are_read_by_type():
    m = messages()
    graph = Builder()
    graph.op("Softmax", graph.input("x", (2,)), name="y", bogus=attribute(m.AttrValue(i=3)))
    assert tf.load(graph.bytes())(x=f32([0, 0]))["y"].tolist() == [0.5, 0.5]


def test_the_page_lists_the_operators():
    page = (Path(__file__).parents[2] / "docs" / "tensorflow.md").read_text()
    table = page.split("## Operators")[1]
    listed = [op for row in table.splitlines()[4:] for op in row.split("|")[2].split()]
    assert sorted(listed) == list(tf.operators())


def test_operators_of_common_networks_have_rules():
    """Those that MIGraphX reads, and those of frozen MobileNet, ResNet, BERT and EfficientNet."""
    names = """
        Add AddN AddV2 All ArgMax ArgMin AvgPool BatchMatMul BatchMatMulV2 BiasAdd Cast ConcatV2
        Const Conv2D DepthwiseConv2dNative ExpandDims FusedBatchNorm FusedBatchNormV3 GatherV2
        Identity LessEqual MatMul MaxPool Mean Mul OneHot Pack Pad Pow Relu Relu6 Reshape Rsqrt
        Shape Sigmoid Slice Softmax Split SplitV SquaredDifference Squeeze StopGradient
        StridedSlice Sub Tanh Transpose
        Einsum Erf Fill GatherNd IdentityN LeakyRelu LogSoftmax Maximum Minimum MirrorPad Neg NoOp
        PadV2 PlaceholderWithDefault Range RealDiv ResizeBilinear ResizeNearestNeighbor Select
        SelectV2 Sqrt Square Sum Tile TopKV2 Unpack SpaceToBatchND BatchToSpaceND Switch Merge
    """
    assert not set(re.findall(r"\w+", names)) - set(tf.operators())
