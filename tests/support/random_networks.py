"""Random graphs of what networks are made of: cells, attention, integers, sampling, loops."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from .random_graphs import RandomGraph, kinds_of

FLOAT = TensorProto.FLOAT


class RandomNetwork(RandomGraph):
    """A graph of nodes with more operands, attributes and subgraphs than those of `RandomGraph`."""

    opset = 23

    def _one_of(self, *values):
        return self.random.choice(values)

    def _as_rank(self, rank):
        while len(self.shape) < rank:
            self._unsqueeze()
        while len(self.shape) > rank:
            self._reshape()

    def _cast(self, kind):
        self.node("Cast", self.value, to=kind)

    def _recurrent(self):
        self._as_rank(3)
        op, hidden = self._one_of("LSTM", "GRU", "RNN"), self.random.randint(1, 4)
        direction = self._one_of("forward", "reverse", "bidirectional")
        both, gates = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        steps, batch, features = self.shape
        given = [self.numbers(both, gates * hidden, n) for n in (features, hidden)]
        given += [self.numbers(both, 2 * gates * hidden)]
        names = [self.constant(v) for v in given]
        lengths = [self.random.randint(1, steps) for _ in range(batch)]
        names.append(self._one_of("", self.constant(np.int32(lengths))))
        has_start = self.random.random() < 0.5
        names.append(self.constant(self.numbers(both, batch, hidden)) if has_start else "")
        how = {"direction": direction, "hidden_size": hidden}
        if op == "LSTM" and has_start:
            names.append(self.constant(self.numbers(both, batch, hidden)))
            if self.random.random() < 0.5:
                names.append(self.constant(self.numbers(both, 3 * hidden)))
        if op == "GRU":
            how["linear_before_reset"] = self.random.randint(0, 1)
        if self.random.random() < 0.3:
            how["clip"] = 0.5
        if self.random.random() < 0.4:
            drawn = {
                "LSTM": (self._one_of("Sigmoid", "HardSigmoid"), "Tanh", "Softsign"),
                "GRU": self._one_of(("Sigmoid", "Softsign"), ("HardSigmoid", "Tanh")),
                "RNN": self._one_of(("Relu",), ("Softplus",)),
            }[op]  # fmt: skip
            how["activations"] = list(drawn) * both
        take = self.random.randint(0, 1)
        shape = (both, batch, hidden) if take else (steps, both, batch, hidden)
        outputs = 3 if op == "LSTM" else 2
        self.node(op, self.value, *names, outputs=outputs, take=take, shape=shape, **how)

    def _attention(self):
        self._as_rank(4)
        batch, heads, queries, width = self.shape
        groups = heads if heads % 2 or self.random.random() < 0.5 else heads // 2
        keys, out = self.random.randint(1, 5), self.random.randint(1, 4)
        before = self.value
        names = [before, self.constant(self.numbers(batch, groups, keys, width)),
                 self.constant(self.numbers(batch, groups, keys, out))]  # fmt: skip
        how = {"is_causal": self.random.randint(0, 1)}
        whole = keys
        mask, past = "", []
        if not how["is_causal"] and self.random.random() < 0.4:  # both, onnxruntime takes otherwise
            more = self.random.randint(1, 3)
            past = [self.constant(self.numbers(batch, groups, more, n)) for n in (width, out)]
            whole += more
        if self.random.random() < 0.5:
            shape = self._one_of((queries, whole), (batch, 1, queries, whole), (1, heads, 1, whole))
            if self.random.random() < 0.5:
                mask = self.constant(self.numbers(*shape))
            else:
                shown = self.numbers(*shape) > -1
                shown[..., 0] = True
                mask = self.constant(shown)
        if self.random.random() < 0.3:
            how["softcap"] = 1.5
        if self.random.random() < 0.3:
            how["scale"] = 0.5
        count = 3 if past else 1
        self.node(
            "Attention", *names, *([mask, *past] if mask or past else []), outputs=count,
            shape=(batch, heads, queries, out), **how,
        )  # fmt: skip

    def _rotary(self):
        self._as_rank(4)
        batch, _, steps, width = self.shape
        if width % 2:
            return self._unary()
        tables = [self.constant(self.numbers(7, width // 2)) for _ in range(2)]
        at = [[self.random.randint(0, 6) for _ in range(steps)] for _ in range(batch)]
        self.node(
            "RotaryEmbedding", self.value, *tables, self.constant(np.int64(at)),
            interleaved=self.random.randint(0, 1),
        )  # fmt: skip

    def _rms_norm(self):
        axis, at = self.axis()
        scale = self.constant(self.numbers(*self.shape[at:]))
        self.node("RMSNormalization", self.value, scale, axis=axis, epsilon=1e-2)

    def _groups(self):
        self._as_image()
        channels = self.shape[1]
        if channels == 1:
            return self._unary()
        groups = self.random.choice([g for g in range(1, channels + 1) if channels % g == 0])
        pair = [self.constant(self.numbers(channels)) for _ in range(2)]
        self.node("GroupNormalization", self.value, *pair, num_groups=groups, epsilon=0.1)

    def _quantized_axis(self):
        axis, at = self.axis()
        n = self.shape[at]
        scale = self.constant(abs(self.numbers(n)) + np.float32(0.25))
        dtype = self._one_of(np.uint8, np.int8)
        zero = self.constant(
            np.array([self.random.randint(-20, 20) % 100 for _ in range(n)], dtype)
        )
        self.node("QuantizeLinear", self.value, scale, zero, axis=axis)
        self.node("DequantizeLinear", self.value, scale, zero, axis=axis)

    def _quantized_dynamic(self):
        self.node("DynamicQuantizeLinear", self.value, outputs=3)
        names = self.nodes[-1].output
        self.node("DequantizeLinear", *names)

    def _integer_product(self):
        """Rounded to 8 bits, multiplied with integers, of which each column may have a zero."""
        if len(self.shape) < 2:
            self._unsqueeze()
        dtype, other = self._one_of(np.uint8, np.int8), self._one_of(np.uint8, np.int8)
        scale = self.constant(np.float32(0.25))
        zero = self.constant(dtype(self.random.randint(0, 100)))
        self.node("QuantizeLinear", self.value, scale, zero)
        count = self.random.randint(1, 4)
        w = [self.random.randint(0, 127) for _ in range(self.shape[-1] * count)]
        w = self.constant(np.array(w, other).reshape(self.shape[-1], count))
        zeros = self.constant(np.array(self.random.randint(0, 90), other))
        shape = (*self.shape[:-1], count)
        if self.random.random() < 0.5 and dtype == np.uint8:
            self.node("MatMulInteger", self.value, w, zero, zeros, shape=shape)
            self._cast(FLOAT)
            return
        scales = [self.constant(np.float32(v)) for v in (0.02, 30.0)]
        if dtype != np.uint8 or other != dtype:
            w = self.constant(self.constants[w].astype(dtype))
            zeros = self.constant(self.constants[zeros].astype(dtype))
        end = self.constant(dtype(3))
        self.node(
            "QLinearMatMul",
            self.value,
            scale,
            zero,
            w,
            scales[0],
            zeros,
            scales[1],
            end,
            shape=shape,
        )
        self.node("DequantizeLinear", self.value, scales[1], end)

    def _integer_convolution(self):
        self._as_image()
        _, channels, rows, columns = self.shape
        scale, zero = self.constant(np.float32(0.25)), self.constant(np.uint8(9))
        self.node("QuantizeLinear", self.value, scale, zero)
        out, kernel = (
            self.random.randint(1, 3),
            [self.random.randint(1, n) for n in (min(rows, 3), min(columns, 3))],
        )
        w = [self.random.randint(-127, 127) for _ in range(out * channels * int(np.prod(kernel)))]
        w = self.constant(np.array(w, np.int8).reshape(out, channels, *kernel))
        scales = abs(self.numbers(out)) + np.float32(0.1)
        w_scale, w_zero = self.constant(scales / 50), self.constant(np.zeros(out, np.int8))
        y_scale, y_zero = self.constant(np.float32(2)), self.constant(np.uint8(100))
        bias = self.constant(
            np.array([self.random.randint(-900, 900) for _ in range(out)], np.int32)
        )
        pads = [self.random.randint(0, k - 1) for k in kernel * 2]
        shape = [
            n + pads[i] + pads[i + 2] - k + 1
            for i, (n, k) in enumerate(zip((rows, columns), kernel))
        ]
        self.node(
            "QLinearConv", self.value, scale, zero, w, w_scale, w_zero, y_scale, y_zero, bias,
            pads=pads, shape=(self.shape[0], out, *shape),
        )  # fmt: skip
        self.node("DequantizeLinear", self.value, y_scale, y_zero)

    def _resize_more(self):
        """By scales or to sizes, with all ways to take samples."""
        self._as_image()
        mode = self._one_of("nearest", "linear", "cubic")
        places = self._one_of(
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            "half_pixel_symmetric",
        )
        how = {"mode": mode, "coordinate_transformation_mode": places}
        if mode == "nearest":
            how["nearest_mode"] = self._one_of(
                "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"
            )
        if mode == "cubic":
            how["cubic_coeff_a"] = self._one_of(-0.75, -0.5)
            how["exclude_outside"] = self.random.randint(0, 1)
        elif mode == "linear" and self.random.random() < 0.3:
            how["antialias"] = 1
        rows, columns = self.shape[2:]
        if self.random.random() < 0.5:
            new = [self.random.randint(1, 2 * n) for n in (rows, columns)]
            last = ["", "", self.constant(np.int64([*self.shape[:2], *new]))]
        else:
            scales = [self._one_of(0.6, 1.0, 1.7, 2.0, 2.5) for _ in range(2)]
            new = [int(n * np.float32(k)) for n, k in zip((rows, columns), scales)]
            last = ["", self.constant(np.float32([1, 1, *scales]))]
        if min(new) > 0:
            self.node("Resize", self.value, *last, shape=(*self.shape[:2], *new), **how)

    def _sample(self):
        self._as_image()
        new = [self.random.randint(1, 4) for _ in range(2)]
        grid = self.constant(self.numbers(self.shape[0], *new, 2) / np.float32(1.5))
        self.node(
            "GridSample", self.value, grid, mode=self._one_of("linear", "nearest", "cubic"),
            padding_mode=self._one_of("zeros", "border", "reflection"),
            align_corners=self.random.randint(0, 1), shape=(*self.shape[:2], *new),
        )  # fmt: skip

    def _blocks(self):
        self._as_image()
        n, c, h, w = self.shape
        if c % 4 == 0:
            self.node("DepthToSpace", self.value, blocksize=2, mode=self._one_of("DCR", "CRD"),
                      shape=(n, c // 4, h * 2, w * 2))  # fmt: skip
        elif h % 2 == 0 and w % 2 == 0:
            self.node("SpaceToDepth", self.value, blocksize=2, shape=(n, c * 4, h // 2, w // 2))

    def _pool_more(self):
        """Powers, or the largest of dilated windows, also where they lie."""
        self._as_image()
        kernel = [self.random.randint(1, min(2, n)) for n in self.shape[2:]]
        if self.random.random() < 0.4:
            new = [n - k + 1 for n, k in zip(self.shape[2:], kernel)]
            self.node("LpPool", self.value, kernel_shape=kernel, p=self._one_of(1, 2, 3),
                      shape=(*self.shape[:2], *new))  # fmt: skip
            return
        dilations = [self.random.randint(1, max(1, n - 1)) for n in self.shape[2:]]
        new = [n - (k - 1) * d for n, k, d in zip(self.shape[2:], kernel, dilations)]
        take = self.random.randint(0, 1)
        self.node(
            "MaxPool", self.value, kernel_shape=kernel, dilations=dilations, outputs=2, take=take,
            storage_order=self.random.randint(0, 1), shape=(*self.shape[:2], *new),
        )  # fmt: skip
        if take:
            self._cast(FLOAT)

    def _whole_pool(self):
        self._as_image()
        self.node(
            self._one_of("GlobalAveragePool", "GlobalMaxPool"),
            self.value,
            shape=(*self.shape[:2], 1, 1),
        )

    def _gather_nd(self):
        depth = self.random.randint(1, len(self.shape))
        batch = self.random.randint(0, min(1, depth - 1))
        count = self.random.randint(1, 3)
        lead = self.shape[:batch]
        sizes = self.shape[batch:depth]
        at = [
            [self.random.randint(-n, n - 1) for n in sizes]
            for _ in range(count * int(np.prod(lead)))
        ]
        at = self.constant(np.int64(at).reshape(*lead, count, len(sizes)))
        self.node(
            "GatherND", self.value, at, batch_dims=batch, shape=(*lead, count, *self.shape[depth:])
        )

    def _scatter_nd(self):
        depth = self.random.randint(1, len(self.shape))
        at = [tuple(self.random.randrange(n) for n in self.shape[:depth]) for _ in range(3)]
        how = self._one_of("none", "add", "mul", "max", "min")
        at = sorted(set(at)) if how == "none" else at
        updates = self.constant(self.numbers(len(at), *self.shape[depth:]))
        self.node("ScatterND", self.value, self.constant(np.int64(at)), updates, reduction=how)

    def _reverse_sequence(self):
        if len(self.shape) < 2:
            return self._unsqueeze()
        time = self.random.randint(0, 1)
        lengths = [self.random.randint(1, self.shape[time]) for _ in range(self.shape[1 - time])]
        self.node("ReverseSequence", self.value, self.constant(np.int64(lengths)), time_axis=time,
                  batch_axis=1 - time)  # fmt: skip

    def _einsum(self):
        self._as_rank(3)
        a, b, c = self.shape
        m = self.random.randint(1, 3)
        terms = [("abc,cm->abm", (c, m), (a, b, m)), ("abc,abm->acm", (a, b, m), (a, c, m)),
                 ("abc->cb", None, (c, b)), ("abc,bm", (b, m), (a, c, m)),
                 ("...c,c->...", (c,), (a, b))]  # fmt: skip
        equation, other, shape = self.random.choice(terms)
        more = [] if other is None else [self.constant(self.numbers(*other))]
        self.node("Einsum", self.value, *more, equation=equation, shape=shape)

    def _more_elements(self):
        op, attributes, other = self.random.choice([
            ("Shrink", {"lambd": 0.6, "bias": 0.2}, None), ("PRelu", {}, "slope"),
            ("LpNormalization", {"axis": self.axis()[0], "p": self._one_of(1, 2)}, None),
            ("Mod", {"fmod": 1}, "number"), ("Pow", {}, "whole"), ("Cosh", {}, None),
            ("Asinh", {}, None), ("IsNaN", {}, None), ("IsInf", {"detect_negative": 0}, None),
        ])  # fmt: skip
        operands = {"slope": self.numbers(self.shape[-1]), "number": np.float32(0.75),
                    "whole": np.int64(self.random.randint(0, 3))}  # fmt: skip
        self.node(
            op, self.value, *([self.constant(operands[other])] if other else []), **attributes
        )
        if op in ("IsNaN", "IsInf"):
            self._cast(FLOAT)

    def _bits(self):
        low, high = self.constant(np.float32(0)), self.constant(np.float32(200))
        self.node("Clip", self.value, low, high)
        kind = self._one_of(TensorProto.UINT8, TensorProto.UINT32)
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        self._cast(kind)
        op = self._one_of("BitwiseAnd", "BitwiseXor", "BitShift")
        other = self.constant(np.asarray(self.random.randint(0, 7), dtype))
        how = {"direction": self._one_of("LEFT", "RIGHT")} if op == "BitShift" else {}
        self.node(op, self.value, other, **how)
        self._cast(FLOAT)

    # Subgraphs

    def _body(self, inputs, nodes, outputs):
        info = helper.make_tensor_value_info
        return helper.make_graph(
            nodes, "body", [info(n, k, s) for n, k, s in inputs],
            [info(n, k, None) for n, k in outputs],
        )  # fmt: skip

    def _if(self):
        """Of what the values are, with branches that read them."""
        before = self.value
        self.node("ReduceSum", before, keepdims=0, shape=self.shape)
        self.node("Greater", self.value, self.constant(np.float32(0)))
        graphs = {}
        for name in ("then_branch", "else_branch"):
            op = self._one_of("Tanh", "Neg", "Abs")
            node = helper.make_node(op, [before], [f"{name}_{len(self.nodes)}"])
            graphs[name] = self._body([], [node], [(node.output[0], FLOAT)])
        self.node("If", self.value, **graphs)

    def _loop(self):
        """A number of steps that is known or depends on values, a carry, and what is stacked.

        There is a step at least: the reference stacks no results of none.
        """
        before, mark = self.value, len(self.nodes)
        trips = self.random.randint(1, 3)
        names = {n: f"{n}_{mark}" for n in ("i", "go", "x", "on", "y", "small", "stack", "size")}
        make = helper.make_node
        is_open = self.random.random() < 0.4  # goes on until a condition fails
        nodes = [
            make("Mul", [names["x"], self.constant(np.float32(0.5))], [names["small"]]),
            make("Add", [names["small"], before], [names["y"]]),
            make("Identity", [names["y"]], [names["stack"]]),
        ]
        if is_open:
            nodes += [
                make("ReduceSum", [names["y"]], [names["size"]], keepdims=0),
                make("Less", [names["size"], self.constant(np.float32(30))], [names["on"]]),
            ]
        else:
            nodes.append(make("Identity", [names["go"]], [names["on"]]))
        body = self._body(
            [(names["i"], TensorProto.INT64, []), (names["go"], TensorProto.BOOL, []),
             (names["x"], FLOAT, None)], nodes,
            [(names["on"], TensorProto.BOOL), (names["y"], FLOAT), (names["stack"], FLOAT)],
        )  # fmt: skip
        count, go = self.constant(np.int64(trips)), self.constant(np.array(True))
        if is_open:
            self.node("Loop", count, go, before, body=body, outputs=2)
            return
        take = int(self.random.random() < 0.5 and len(self.shape) < 4)
        shape = (trips, *self.shape) if take else self.shape
        self.node("Loop", count, "", before, body=body, outputs=2, take=take, shape=shape)

    def _scan(self):
        if len(self.shape) < 2:
            return self._unsqueeze()
        mark, axis, back = len(self.nodes), self.random.randint(0, 1), self.random.randint(0, 1)
        rest = [n for i, n in enumerate(self.shape) if i != axis]
        names = {n: f"{n}_{mark}" for n in ("c", "x", "d", "y")}
        nodes = [
            helper.make_node("Add", [names["c"], names["x"]], [names["d"]]),
            helper.make_node(self._one_of("Tanh", "Abs"), [names["d"]], [names["y"]]),
        ]
        body = self._body(
            [(names["c"], FLOAT, None), (names["x"], FLOAT, None)], nodes,
            [(names["d"], FLOAT), (names["y"], FLOAT)],
        )  # fmt: skip
        start = self.constant(self.numbers(*rest))
        take, new = self.random.randint(0, 1), self.random.randint(0, len(rest))
        stacked = list(rest)
        stacked.insert(new, self.shape[axis])
        self.node(
            "Scan", start, self.value, body=body, num_scan_inputs=1, scan_input_axes=[axis],
            scan_input_directions=[back], scan_output_axes=[new],
            outputs=2, take=take,
            shape=stacked if take else rest,
        )  # fmt: skip


RandomNetwork.kinds = [*kinds_of(RandomNetwork) * 2, *RandomGraph.kinds]
