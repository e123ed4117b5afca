"""What exporters write out in small operators, as nodes, and what the compiler makes of it.

The rows are those of the table in docs/models.md. Nodes are `outputs=Operator(inputs;attribute=1)`.
"""

import math
from dataclasses import dataclass

import numpy as np

B, T, N, K, H, PAST = 2, 8, 4, 2, 16, 5
LEAST = np.finfo(np.float32).min


def _arrays():
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.standard_normal(shape, np.float32)
    kept = rng.random((B, 1, T, T)) < 0.6
    kept[0, 0, 2] = False
    kept[..., 0] |= kept.any(-1)
    inputs = {
        "x": normal(4, 16, 64), "q": normal(B, T, N * H), "k": normal(B, T, N * H),
        "v": normal(B, T, N * H), "kg": normal(B, T, K * H), "vg": normal(B, T, K * H),
        "pk": normal(B, K, PAST, H), "pv": normal(B, K, PAST, H), "kept": kept,
        "bias": np.where(kept, normal(B, 1, T, T), LEAST),
        "longer": normal(B, 1, T, PAST + T), "words": np.int64([[1] * T, [1] * 5 + [0] * (T - 5)]),
        "heads": normal(B, N, T, H), "image": normal(1, 8, 12, 12),
    }  # fmt: skip
    angles = rng.random((1, 1, T, H // 2)).astype(np.float32)
    both = np.concatenate([angles, angles], -1)
    constants = {
        "last": [-1], "ends": [1 << 40], "none": [0], "one_axis": [1], "two": np.int64([2]),
        "half": [H // 2], "first": [0], "pairs": [2], "by_heads": [0, 0, N, H],
        "by_groups": [0, 0, K, H], "flat": [0, 0, N * H], "squares": [T, T],
        "repeats": [B, K, N // K, T, H], "repeated": [B, N, T, H],
        "later": [B, K, N // K, PAST + T, H], "later_heads": [B, N, PAST + T, H],
        "together": [0, 0, 0, H],
    }  # fmt: skip
    constants = {n: np.int64(v) for n, v in constants.items()}
    scalars = {
        "small": 1e-5, "f0": 0, "f1": 1, "f2": 2, "f3": 3, "f6": 6, "f05": 0.5, "sqrt2": 2**0.5,
        "quick": 1.702, "cubed": 0.044715, "factor": (2 / math.pi) ** 0.5, "never": -np.inf,
        "least": LEAST, "root": H**-0.25, "scale": H**-0.5, "width": H**0.5, "xs": 0.02, "ws": 0.01,
    }  # fmt: skip
    constants |= {n: np.float32(v) for n, v in scalars.items()}
    constants |= {
        "g": normal(64), "b": normal(64), "cos": np.cos(both), "sin": np.sin(both),
        "cosp": np.cos(angles), "sinp": np.sin(angles),
        "triangle": np.tri(T, dtype=bool)[None, None],
        "ones": np.ones((1, 1), np.float32), "xz": np.int8(3), "uz": np.uint8(100),
        "w": rng.integers(-127, 128, (64, 32)).astype(np.int8),
        "kernel": rng.integers(-127, 128, (16, 8, 3, 3)).astype(np.int8),
        "kernels": np.float32(rng.random(16) / 50), "taps": normal(16, 8, 3, 3) / 8,
        "bg": normal(16), "bb": normal(16), "bm": normal(16),
        "bv": rng.random(16, np.float32) + 0.5,
    }  # fmt: skip
    return inputs, constants


INPUTS, CONSTANTS = _arrays()


@dataclass(frozen=True)
class Form:
    """What is written, and what it becomes.

    Args:
      name: as docs/models.md has it.
      nodes: as text.
      becomes: the steps of the compiled program: `attention`, `convolution`, `product`, and
        `region` for elementwise operations and reductions that are one kernel.
      want: the outputs, of the arrays in float64.
      rounds: whether it rounds to few bits: a step of those may be another where sums differ.
    """

    name: str
    nodes: str
    becomes: tuple[str, ...]
    want: object
    rounds: float = 0.0

    @property
    def inputs(self):
        """The arrays that the nodes read and do not make, but constants."""
        read = {n for _, _, inputs, _ in self.parsed() for n in inputs}
        return {n: v for n, v in INPUTS.items() if n in read}

    @property
    def constants(self):
        """The constants that the nodes read."""
        read = {n for _, _, inputs, _ in self.parsed() for n in inputs}
        return {n: v for n, v in CONSTANTS.items() if n in read}

    def parsed(self):
        """Outputs, operator, inputs and attributes of each node."""
        for part in self.nodes.split():
            outputs, call = part.split("=", 1)
            op, rest = call.rstrip(")").split("(", 1)
            inputs, *attributes = rest.split(";")
            found = dict(a.split("=") for a in attributes)
            numbers = {k: [int(n) for n in v.split(",")] for k, v in found.items()}
            single = {k: v if k in ("axes", "perm") else v[0] for k, v in numbers.items()}
            yield outputs.split(","), op, inputs.split(","), single


def _split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _attention(a, bias=0.0, allowed=None, keys=None, values=None, empty=0.0):
    q = _split(a["q"], N)
    keys = _split(a["k"], N) if keys is None else np.repeat(keys, N // K, 1)
    values = _split(a["v"], N) if values is None else np.repeat(values, N // K, 1)
    logits = q @ keys.swapaxes(2, 3) / np.sqrt(H) + bias
    logits = logits if allowed is None else np.where(allowed, logits, -np.inf)
    top = logits.max(-1, keepdims=True)
    w = np.exp(logits - np.where(np.isinf(top), 0, top))
    total = w.sum(-1, keepdims=True)
    w = np.where(total == 0, empty, w / np.where(total == 0, 1, total))
    return {"y": (w @ values).swapaxes(1, 2).reshape(B, T, -1)}


def _grouped(a):
    return _attention(a, a["bias"], keys=_split(a["kg"], K), values=_split(a["vg"], K))


def _cached(a):
    keys, values = (
        np.concatenate([a[past], _split(a[new], K)], 2)
        for past, new in (("pk", "kg"), ("pv", "vg"))
    )
    return _attention(a, a["longer"], keys=keys, values=values) | {"ck": keys, "cv": values}


def _one(f):
    return lambda a: {"y": f(a)}


def _rope(a):
    x, y = np.split(a["heads"], 2, -1)
    return a["heads"] * a["cos"] + np.concatenate([-y, x], -1) * a["sin"]


def _rope_of_pairs(a):
    x, y = a["heads"][..., ::2], a["heads"][..., 1::2]
    turned = [x * a["cosp"] - y * a["sinp"], x * a["sinp"] + y * a["cosp"]]
    return np.stack(turned, -1).reshape(x.shape[:-1] + (H,))


def _rounded(x, scale, zero, low, high):
    return (np.clip(np.rint(x / scale) + zero, low, high) - zero) * scale


def _conv(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, w)


def _batch_norm(a, x):
    by_channel = lambda n: a[n][:, None, None]
    y = (x - by_channel("bm")) / np.sqrt(by_channel("bv") + 1e-5) * by_channel("bg")
    return y + by_channel("bb")


def _gelu_tanh(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


_erf = np.vectorize(math.erf)
_x = lambda f: _one(lambda a: f(a["x"]))
_sigmoid = lambda x: 1 / (1 + np.exp(-x))
_norm = lambda a, c: c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * a["g"]

_HEADS = (
    "q1=Reshape(q,by_heads) qh=Transpose(q1;perm=0,2,1,3) "
    "k1=Reshape(k,by_heads) kh=Transpose(k1;perm=0,2,1,3) kt=Transpose(kh;perm=0,1,3,2) "
    "v1=Reshape(v,by_heads) vh=Transpose(v1;perm=0,2,1,3) "
)
_TORCH = _HEADS + "qs=Mul(qh,root) ks=Mul(kt,root) l=MatMul(qs,ks) "
_EAGER = _HEADS + "p=MatMul(qh,kt) l=Mul(p,scale) "
_SUMS = " o=MatMul(s,vh) ot=Transpose(o;perm=0,2,1,3) y=Reshape(ot,flat)"
_GROUPS = (
    "q1=Reshape(q,by_heads) qh=Transpose(q1;perm=0,2,1,3) "
    "k1=Reshape(kg,by_groups) kn=Transpose(k1;perm=0,2,1,3) "
    "v1=Reshape(vg,by_groups) vn=Transpose(v1;perm=0,2,1,3) "
)
_REPEATED = (
    "ku=Unsqueeze({k},two) ke=Expand(ku,{by}) kh=Reshape(ke,{heads}) "
    "vu=Unsqueeze({v},two) ve=Expand(vu,{by}) vh=Reshape(ve,{heads}) "
    "kt=Transpose(kh;perm=0,1,3,2) p=MatMul(qh,kt) l=Mul(p,scale) "
)
_QUANTIZED = "xq=QuantizeLinear({x},xs,{z}) xd=DequantizeLinear(xq,xs,{z}) "

ATTENTION, REGION = ("attention",), ("region",)

FORMS = [
    Form("attention of torch", f"{_TORCH} s=Softmax(l) {_SUMS}", ATTENTION, _attention),
    Form("attention of torch, mask added", f"{_TORCH} m=Add(l,bias) s=Softmax(m) {_SUMS}",
         ATTENTION, lambda a: _attention(a, a["bias"])),
    Form("attention of torch, boolean mask",
         f"{_TORCH} c=Where(kept,f0,never) m=Add(l,c) sm=Softmax(m) n=IsNaN(sm) s=Where(n,f0,sm) "
         f"{_SUMS}",
         ("region", "attention", "region"), lambda a: _attention(a, allowed=a["kept"])),
    Form("attention of torch, causal",
         f"{_TORCH} e=Expand(ones,squares) t=Trilu(e;upper=0) z=Equal(t,f0) c=Where(z,never,f0) "
         f"m=Add(l,c) s=Softmax(m) {_SUMS}",
         ATTENTION, lambda a: _attention(a, allowed=np.tri(T, dtype=bool))),
    Form("attention in small operations, mask added",
         f"{_EAGER} m=Add(l,bias) s=Softmax(m) {_SUMS}", ATTENTION,
         lambda a: _attention(a, a["bias"])),
    Form("attention of BERT, mask of tokens",
         f"{_HEADS} p=MatMul(qh,kt) l=Div(p,width) m1=Unsqueeze(words,one_axis) "
         f"m2=Unsqueeze(m1,two) m3=Cast(m2;to=1) m4=Sub(f1,m3) m5=Mul(m4,least) m=Add(l,m5) "
         f"s=Softmax(m) {_SUMS}",
         ("region", "attention"), lambda a: _attention(a, allowed=a["words"][:, None, None] > 0)),
    Form("attention of GPT-2, causal",
         f"{_HEADS} p=MatMul(qh,kt) l=Div(p,width) m=Where(triangle,l,least) s=Softmax(m) {_SUMS}",
         ATTENTION, lambda a: _attention(a, allowed=np.tri(T, dtype=bool))),
    Form("attention of grouped heads",
         _GROUPS + _REPEATED.format(k="kn", v="vn", by="repeats", heads="repeated")
         + f"m=Add(l,bias) s=Softmax(m) {_SUMS}", ATTENTION, _grouped),
    Form("attention with a cache",
         _GROUPS + "ck=Concat(pk,kn;axis=2) cv=Concat(pv,vn;axis=2) "
         + _REPEATED.format(k="ck", v="cv", by="later", heads="later_heads")
         + f"m=Add(l,longer) s=Softmax(m) {_SUMS}", ("region", "region", "attention"),
         _cached),
    Form("rotary positions of halves",
         "a=Slice(heads,none,half,last) c=Slice(heads,half,ends,last) n=Neg(c) "
         "t=Concat(n,a;axis=-1) p=Mul(heads,cos) r=Mul(t,sin) y=Add(p,r)", REGION, _one(_rope)),
    Form("rotary positions of pairs",
         "a=Slice(heads,none,ends,last,pairs) c=Slice(heads,one_axis,ends,last,pairs) "
         "ac=Mul(a,cosp) cs=Mul(c,sinp) r=Sub(ac,cs) as=Mul(a,sinp) cc=Mul(c,cosp) i=Add(as,cc) "
         "ru=Unsqueeze(r,last) iu=Unsqueeze(i,last) s=Concat(ru,iu;axis=-1) y=Reshape(s,together)",
         REGION, _one(_rope_of_pairs)),
    Form("layer norm",
         "m=ReduceMean(x;axes=-1) d=Sub(x,m) p=Pow(d,f2) vr=ReduceMean(p;axes=-1) e=Add(vr,small) "
         "s=Sqrt(e) n=Div(d,s) h=Mul(n,g) y=Add(h,b)", REGION,
         _one(lambda a: _norm(a, a["x"] - a["x"].mean(-1, keepdims=True)) + a["b"])),
    Form("RMS norm",
         "p=Pow(x,f2) vr=ReduceMean(p;axes=-1) e=Add(vr,small) s=Sqrt(e) r=Div(f1,s) n=Mul(x,r) "
         "y=Mul(g,n)", REGION, _one(lambda a: _norm(a, a["x"]))),
    Form("GELU", "d=Div(x,sqrt2) e=Erf(d) p=Add(e,f1) m=Mul(x,p) y=Mul(m,f05)", REGION,
         _x(lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2)),
    Form("GELU by tanh",
         "x2=Mul(x,x) x3=Mul(x,x2) c=Mul(cubed,x3) i=Add(x,c) t=Mul(factor,i) h=Tanh(t) "
         "p=Add(f1,h) o=Mul(f05,x) y=Mul(o,p)", REGION, _x(_gelu_tanh)),
    Form("GELU by tanh, of a power",
         "o=Mul(x,f05) x3=Pow(x,f3) c=Mul(x3,cubed) i=Add(x,c) t=Mul(i,factor) h=Tanh(t) "
         "p=Add(h,f1) y=Mul(o,p)", REGION, _x(_gelu_tanh)),
    Form("quick GELU", "m=Mul(x,quick) s=Sigmoid(m) y=Mul(x,s)", REGION,
         _x(lambda x: x * _sigmoid(1.702 * x))),
    Form("SiLU", "s=Sigmoid(x) y=Mul(x,s)", REGION, _x(lambda x: x * _sigmoid(x))),
    Form("hard swish", "a=Add(x,f3) c=Clip(a,f0,f6) m=Mul(x,c) y=Div(m,f6)", REGION,
         _x(lambda x: x * np.clip(x + 3, 0, 6) / 6)),
    Form("convolution, batch norm, ReLU",
         "c=Conv(image,taps) n=BatchNormalization(c,bg,bb,bm,bv) y=Relu(n)", ("convolution",),
         _one(lambda a: np.maximum(_batch_norm(a, _conv(a["image"], a["taps"])), 0))),
    Form("quantized product",
         _QUANTIZED.format(x="x", z="xz") + "wd=DequantizeLinear(w,ws) y=MatMul(xd,wd)",
         ("region", "product"),
         _one(lambda a: _rounded(a["x"], a["xs"], 3, -128, 127) @ (a["w"] * a["ws"])), 1e-5),
    Form("quantized convolution",
         _QUANTIZED.format(x="image", z="uz")
         + "wd=DequantizeLinear(kernel,kernels;axis=0) c=Conv(xd,wd) y=Relu(c)",
         ("region", "convolution"),
         _one(lambda a: np.maximum(_conv(_rounded(a["image"], a["xs"], 100, 0, 255),
                                         a["kernel"] * a["kernels"][:, None, None, None]), 0)),
         1e-5),
]  # fmt: skip
