"""Random graphs of common operators of ONNX, with attributes at their edges."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

UNARY = [
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Abs", {}), ("Neg", {}), ("Erf", {}),
    ("Floor", {}), ("Ceil", {}), ("Round", {}), ("Sign", {}), ("Softplus", {}), ("Exp", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("LeakyRelu", {"alpha": 0.2}),
    ("Elu", {"alpha": 0.7}), ("Selu", {}), ("Celu", {"alpha": 1.5}), ("Softsign", {}),
    ("ThresholdedRelu", {"alpha": 0.3}), ("Mish", {}), ("HardSwish", {}), ("Identity", {}),
    ("Gelu", {"approximate": "tanh"}), ("Gelu", {}), ("Reciprocal", {}), ("Sin", {}), ("Atan", {}),
]  # fmt: skip
REDUCTIONS = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSumExp", "ReduceProd",
]  # fmt: skip


class RandomGraph:
    """A graph of one input, `x`, of random shape, and of random nodes in a row.

    Args:
      random: what is drawn from, a `random.Random`.
      size: how many nodes there are.
    """

    opset = 20
    kinds = ()  # of nodes

    def __init__(self, random, size):
        self.random, self.nodes, self.constants = random, [], {}
        self.shape = tuple(random.randint(1, 5) for _ in range(random.randint(1, 4)))
        self.given = self.shape
        self.value = "x"
        for _ in range(size):
            getattr(self, f"_{random.choice(self.kinds)}")()

    def model(self, shape=None):
        """The model, whose input has this shape."""
        info = helper.make_tensor_value_info
        x, y = info("x", TensorProto.FLOAT, shape or self.given), info(self.value, 1, None)
        held = [numpy_helper.from_array(v, n) for n, v in self.constants.items()]
        graph = helper.make_graph(self.nodes, "g", [x], [y], held)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10
        )

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, op, *inputs, shape=None, outputs=1, take=0, **attributes):
        """Append a node; its output `take` is the value from now on."""
        names = [f"{op}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        self.value, self.shape = names[take], self.shape if shape is None else tuple(shape)

    def numbers(self, *shape):
        count = int(np.prod(shape))
        drawn = [self.random.randint(-8, 8) / 4 for _ in range(count)]
        return np.float32(drawn).reshape(shape)

    def axis(self, least=0):
        """An axis, counted from either end, and where it is."""
        at = self.random.randrange(least, len(self.shape))
        return self.random.choice([at, at - len(self.shape)]), at

    # Kinds of nodes

    def _unary(self):
        op, attributes = self.random.choice(UNARY)
        self.node(op, self.value, **attributes)

    def _binary(self):
        """With a constant that broadcasts, on either side."""
        op = self.random.choice(["Add", "Sub", "Mul", "Div", "Max", "Min"])
        shape = [self.random.choice([n, 1]) for n in self.shape]
        shape = shape[self.random.randrange(len(shape) + 1) :]
        pair = [self.value, self.constant(self.numbers(*shape))]
        self.random.shuffle(pair)
        self.node(op, *pair)

    def _choice(self):
        before = self.value
        op = self.random.choice(["Greater", "LessOrEqual", "Equal", "Less"])
        self.node(op, before, self.constant(self.numbers()))
        self.node("Where", self.value, before, self.constant(self.numbers(*self.shape[-1:])))

    def _clip(self):
        low = self.constant(np.float32(self.random.randint(-4, 2) / 4))
        high = self.constant(np.float32(self.random.randint(-2, 4) / 4))
        self.node("Clip", self.value, *self.random.choice([(low, high), (low,), ("", high)]))

    def _integers(self):
        """Rounded toward zero, arithmetic of integers of either sign, and back."""
        kind = self.random.choice([TensorProto.INT32, TensorProto.INT64, TensorProto.INT8])
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        low, high = self.constant(np.float32(-100)), self.constant(np.float32(100))
        self.node("Clip", self.value, low, high)
        self.node("Cast", self.value, to=kind)
        other = self.constant(np.asarray(self.random.choice([-7, -3, -1, 2, 3, 5]), dtype))
        if kind == TensorProto.INT8:
            self.node("Mod", self.value, other)
        else:
            op, how = self.random.choice(
                [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1}), ("Mul", {})]
            )
            self.node(op, self.value, other, **how)
        self.node("Cast", self.value, to=TensorProto.FLOAT)

    def _reduce(self):
        op, keep = self.random.choice(REDUCTIONS), self.random.randint(0, 1)
        axes = sorted(
            self.random.sample(range(len(self.shape)), self.random.randint(1, len(self.shape)))
        )
        if len(axes) == len(self.shape):
            keep = 1
        kept = [1 if i in axes else n for i, n in enumerate(self.shape) if keep or i not in axes]
        signed = [self.random.choice([a, a - len(self.shape)]) for a in axes]
        self.node(op, self.value, self.constant(np.int64(signed)), keepdims=keep, shape=kept)

    def _arg(self):
        axis, at = self.axis()
        keep = 1 if len(self.shape) == 1 else self.random.randint(0, 1)
        shape = [1 if i == at else n for i, n in enumerate(self.shape) if keep or i != at]
        self.node(
            self.random.choice(["ArgMax", "ArgMin"]), self.value, axis=axis, keepdims=keep,
            select_last_index=self.random.randint(0, 1), shape=shape,
        )  # fmt: skip
        self.node("Cast", self.value, to=TensorProto.FLOAT)

    def _softmax(self):
        self.node(
            self.random.choice(["Softmax", "LogSoftmax", "Hardmax"]),
            self.value,
            axis=self.axis()[0],
        )

    def _cumsum(self):
        self.node(
            "CumSum", self.value, self.constant(np.int64(self.axis()[0])),
            exclusive=self.random.randint(0, 1), reverse=self.random.randint(0, 1),
        )  # fmt: skip

    def _transpose(self):
        order = self.random.sample(range(len(self.shape)), len(self.shape))
        self.node("Transpose", self.value, perm=order, shape=[self.shape[i] for i in order])

    def _reshape(self):
        """Two neighbors become one, by -1 and 0."""
        if len(self.shape) < 2:
            return self._unsqueeze()
        at = self.random.randrange(len(self.shape) - 1)
        joined = self.shape[at] * self.shape[at + 1]
        shape = [*self.shape[:at], joined, *self.shape[at + 2 :]]
        said = [0 if i < at else n for i, n in enumerate(shape)]
        said[at] = -1
        self.node("Reshape", self.value, self.constant(np.int64(said)), shape=shape)

    def _flatten(self):
        axis = self.random.randint(-len(self.shape), len(self.shape))
        at = axis + len(self.shape) * (axis < 0)
        sizes = int(np.prod(self.shape[:at])), int(np.prod(self.shape[at:]))
        self.node("Flatten", self.value, axis=axis, shape=sizes)

    def _unsqueeze(self):
        if len(self.shape) > 4:
            return self._flatten()
        at = self.random.randint(0, len(self.shape))
        axis = self.random.choice([at, at - len(self.shape) - 1])
        shape = [*self.shape[:at], 1, *self.shape[at:]]
        self.node("Unsqueeze", self.value, self.constant(np.int64([axis])), shape=shape)

    def _concat(self):
        axis, at = self.axis()
        before = self.value
        self._unary()
        shape = [n * (1 + (i == at)) for i, n in enumerate(self.shape)]
        self.node("Concat", before, self.value, axis=axis, shape=shape)

    def _split(self):
        axis, at = self.axis()
        n = self.shape[at]
        if n < 2:
            return self._unary()
        first, take = self.random.randint(1, n - 1), self.random.randint(0, 1)
        shape = [(first, n - first)[take] if i == at else m for i, m in enumerate(self.shape)]
        sizes = self.constant(np.int64([first, n - first]))
        self.node("Split", self.value, sizes, axis=axis, outputs=2, take=take, shape=shape)

    def _slice(self):
        """Bounds from either end, beyond it, and backwards; what is left is not empty."""
        axis, at = self.axis()
        n = self.shape[at]
        start, end = self.random.randint(-n - 2, n + 2), self.random.randint(-n - 2, n + 2)
        step = self.random.choice([1, 1, 2, -1, -2])
        left = len(range(n)[start:end:step])
        if left == 0:
            start, end, step, left = (-1, -n - 5, -1, n)
        ends = [self.constant(np.int64([v])) for v in (start, end, axis, step)]
        shape = [left if i == at else m for i, m in enumerate(self.shape)]
        self.node("Slice", self.value, *ends, shape=shape)

    def _gather(self):
        axis, at = self.axis()
        n = self.shape[at]
        index = [self.random.randint(-n, n - 1) for _ in range(self.random.randint(1, 4))]
        shape = [len(index) if i == at else m for i, m in enumerate(self.shape)]
        self.node("Gather", self.value, self.constant(np.int64(index)), axis=axis, shape=shape)

    def _scatter(self):
        axis, at = self.axis()
        n, shape = self.shape[at], [self.random.randint(1, m) for m in self.shape]
        how = self.random.choice(["none", "add", "mul", "max", "min"])
        count = int(np.prod(shape))
        index = np.int64([self.random.randint(-n, n - 1) for _ in range(count)]).reshape(shape)
        if how == "none":  # each place once
            index = np.indices(shape)[at]
        given = self.constant(index), self.constant(self.numbers(*shape))
        self.node("ScatterElements", self.value, *given, axis=axis, reduction=how)

    def _pad(self):
        mode = self.random.choice(["constant", "edge", "reflect", "wrap"])
        pads = [[self.random.randint(0, min(2, n - 1)) for n in self.shape] for _ in range(2)]
        if mode == "constant":
            pads = [[self.random.randint(-((n - 1) // 2), 2) for n in self.shape] for _ in range(2)]
        shape = [n + a + b for n, a, b in zip(self.shape, *pads)]
        extra = [self.constant(np.float32(1.5))] if mode == "constant" else []
        self.node(
            "Pad",
            self.value,
            self.constant(np.int64(np.ravel(pads))),
            *extra,
            mode=mode,
            shape=shape,
        )

    def _tile(self):
        times = [self.random.randint(1, 2) for _ in self.shape]
        shape = [n * t for n, t in zip(self.shape, times)]
        if np.prod(shape) < 2000:
            self.node("Tile", self.value, self.constant(np.int64(times)), shape=shape)

    def _topk(self):
        axis, at = self.axis()
        k, take = self.random.randint(1, self.shape[at]), self.random.randint(0, 1)
        shape = [k if i == at else n for i, n in enumerate(self.shape)]
        self.node(
            "TopK", self.value, self.constant(np.int64([k])), axis=axis, outputs=2, take=take,
            largest=self.random.randint(0, 1), shape=shape,
        )  # fmt: skip
        self.node("Cast", self.value, to=TensorProto.FLOAT)

    def _matmul(self):
        m = self.random.randint(1, 4)
        w = self.constant(self.numbers(self.shape[-1], m))
        self.node("MatMul", self.value, w, shape=[*self.shape[:-1], m])

    def _gemm(self):
        if len(self.shape) != 2:
            self._flatten()
        a, b, m = self.random.randint(0, 1), self.random.randint(0, 1), self.random.randint(1, 4)
        rows, depth = self.shape[::-1] if a else self.shape
        w = self.constant(self.numbers(*((m, depth) if b else (depth, m))))
        bias = self.constant(self.numbers(*self.random.choice([(m,), (1, m), (rows, 1), ()])))
        self.node(
            "Gemm", self.value, w, bias, transA=a, transB=b, alpha=0.5, beta=2.0, shape=(rows, m)
        )

    def _norm(self):
        axis, at = self.axis()
        scale = [self.constant(self.numbers(*self.shape[at:])) for _ in range(2)]
        self.node("LayerNormalization", self.value, *scale, axis=axis, epsilon=1e-2)

    def _trilu(self):
        if len(self.shape) < 2:
            return self._unsqueeze()
        k = self.constant(np.int64(self.random.randint(-3, 3)))
        self.node("Trilu", self.value, k, upper=self.random.randint(0, 1))

    def _as_image(self):
        while len(self.shape) < 4:
            self._unsqueeze()
        while len(self.shape) > 4:
            self._reshape()

    def _conv(self):
        self._as_image()
        c, o = self.shape[1], self.random.randint(1, 3)
        kernel = [self.random.randint(1, 3) for _ in range(2)]
        pads = [self.random.randint(0, 2) for _ in range(4)]
        strides, dilations = ([self.random.randint(1, 2) for _ in range(2)] for _ in range(2))
        new = [
            (n + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i, n in enumerate(self.shape[2:])
        ]
        if min(new) < 1:
            return
        w = self.constant(self.numbers(o, c, *kernel))
        self.node(
            "Conv", self.value, w, self.constant(self.numbers(o)), pads=pads, strides=strides,
            dilations=dilations, shape=(self.shape[0], o, *new),
        )  # fmt: skip

    def _pool(self):
        self._as_image()
        kernel = [self.random.randint(1, min(3, n)) for n in self.shape[2:]]
        pads = [self.random.randint(0, k - 1) for k in kernel * 2]
        strides, up = [self.random.randint(1, 2) for _ in kernel], self.random.randint(0, 1)
        new = []
        for i, (n, k, s) in enumerate(zip(self.shape[2:], kernel, strides)):
            whole = n + pads[i] + pads[i + 2] - k
            m = (-(-whole // s) if up else whole // s) + 1
            new.append(m - (up and (m - 1) * s >= n + pads[i]))
        op = self.random.choice(["MaxPool", "AveragePool"])
        how = {} if op == "MaxPool" else {"count_include_pad": self.random.randint(0, 1)}
        self.node(
            op, self.value, kernel_shape=kernel, pads=pads, strides=strides, ceil_mode=up,
            shape=(*self.shape[:2], *new), **how,
        )  # fmt: skip

    def _lrn(self):
        self._as_image()
        self.node("LRN", self.value, size=self.random.choice([1, 3, 5]), alpha=0.3, beta=0.6)

    def _deconv(self):
        self._as_image()
        c, o = self.shape[1], self.random.randint(1, 2)
        kernel, strides = ([self.random.randint(1, 3) for _ in range(2)] for _ in range(2))
        pads = [self.random.randint(0, k - 1) for k in kernel * 2]
        more = [self.random.randint(0, s - 1) for s in strides]
        new = [
            (n - 1) * strides[i] + kernel[i] - pads[i] - pads[i + 2] + more[i]
            for i, n in enumerate(self.shape[2:])
        ]
        if min(new) < 1:
            return
        w = self.constant(self.numbers(c, o, *kernel))
        self.node(
            "ConvTranspose", self.value, w, strides=strides, pads=pads, output_padding=more,
            shape=(self.shape[0], o, *new),
        )  # fmt: skip

    def _gather_elements(self):
        axis, at = self.axis()
        shape = [self.random.randint(1, n) for n in self.shape]
        shape[at] = self.random.randint(1, 3)
        n = self.shape[at]
        index = [self.random.randint(-n, n - 1) for _ in range(int(np.prod(shape)))]
        index = self.constant(np.int64(index).reshape(shape))
        self.node("GatherElements", self.value, index, axis=axis, shape=shape)

    def _one_hot(self):
        """Of rounded values, of which some are negative or beyond the depth."""
        depth, axis = self.random.randint(1, 4), self.random.randint(-1, len(self.shape))
        if len(self.shape) > 4:
            return
        low, high = self.constant(np.float32(-9)), self.constant(np.float32(9))
        self.node("Clip", self.value, low, high)
        self.node("Cast", self.value, to=TensorProto.INT64)
        at = axis if axis >= 0 else len(self.shape)
        shape = [*self.shape[:at], depth, *self.shape[at:]]
        ends = self.constant(np.float32([0.5, 2]))
        self.node(
            "OneHot", self.value, self.constant(np.int64(depth)), ends, axis=axis, shape=shape
        )

    def _expand(self):
        shape = [
            self.random.choice([n, 1]) if n > 1 else self.random.randint(1, 3) for n in self.shape
        ]
        made = [max(n, m) for n, m in zip(self.shape, shape)]
        self.node("Expand", self.value, self.constant(np.int64(shape)), shape=made)

    def _instance_norm(self):
        self._as_image()
        pair = [self.constant(self.numbers(self.shape[1])) for _ in range(2)]
        self.node("InstanceNormalization", self.value, *pair, epsilon=0.1)

    def _group_norm(self):
        self._as_image()
        scale, bias, mean = (self.numbers(self.shape[1]) for _ in range(3))
        given = [self.constant(v) for v in (scale, bias, mean, abs(scale) + 1)]
        self.node("BatchNormalization", self.value, *given, epsilon=0.1)

    def _quantized(self):
        scale = self.constant(np.float32(0.25))
        zero = self.random.choice([np.uint8(self.random.randint(0, 255)), np.int8(-3)])
        zero = self.constant(zero)
        self.node("QuantizeLinear", self.value, scale, zero)
        self.node("DequantizeLinear", self.value, scale, zero)

    def _same_shape(self):
        """Reshaped to what it was, as its sizes say."""
        before = self.value
        self.node("Shape", before, start=self.random.randint(-2, 0) if len(self.shape) > 1 else 0)
        shape = self.value
        self.value = before
        if self.nodes[-1].attribute[0].i == 0:
            self.node("Reshape", before, shape)
        else:
            self.node("ConstantOfShape", shape)
            self.node("Add", before, self.value)

    def _resize(self):
        self._as_image()
        scales = [1, 1, *(self.random.choice([0.5, 1, 1.5, 2, 3]) for _ in range(2))]
        new = [int(n * k) for n, k in zip(self.shape, scales)]
        if min(new) < 1:
            return
        mode = self.random.choice(["nearest", "linear"])
        places = self.random.choice(["half_pixel", "asymmetric", "align_corners"])
        self.node(
            "Resize", self.value, "", self.constant(np.float32(scales)), mode=mode, shape=new,
            coordinate_transformation_mode=places,
        )  # fmt: skip


def kinds_of(cls):
    """The kinds of nodes that a class makes, by methods that begin with "_"."""
    helpers = ("_as_image", "_as_rank", "_one_of", "_cast", "_body")
    names = [n for n in vars(cls) if n.startswith("_") and not n.startswith("__")]
    return [n[1:] for n in names if n not in helpers]


RandomGraph.kinds = kinds_of(RandomGraph)
