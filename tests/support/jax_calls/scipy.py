"""Calls of the functions of `jax.scipy` other than `special` and `stats`."""

from __future__ import annotations

from tests.support.jax_calls import ALL, FLOATS, Call, Draw, Family, Spec

PREFIX = "scipy"
USUAL = ["float32", "float32", "float64", "int32"]
INEXACT = ["float32", "float32", "float64", "complex64"]
NARROW = [*FLOATS, "float32", "int32", "complex64"]


def _matrix(d: Draw, kind: str = "definite", dtypes: list[str] = INEXACT) -> Spec:
    shape = d.pick([[3, 3], [2, 2], [1, 1], [2, 2, 2], [0, 0]])
    dtype = d.dtype(dtypes) if d.chance(0.9) else d.dtype(ALL)
    return {"a": [dtype, shape, d.random.randrange(50), kind]}


def _size(x: Spec) -> list[int]:
    return x["a"][1]


def _rhs(d: Draw, x: Spec) -> Spec:
    *batch, n = _size(x)[:-1]
    shape = [*batch, *d.pick([[n], [n, 2], [n, 1]])] if not batch else [*batch, n, 2]
    return {"a": [x["a"][0], shape if d.chance(0.9) else [5], d.random.randrange(50), "usual"]}


def square(d: Draw) -> Call:
    return [_matrix(d)], {}


def triangular(d: Draw) -> Call:
    x = _matrix(d)
    kwargs = d.options(lower=lambda: d.pick([True, False]))
    if d.name == "linalg.solve_triangular":
        kwargs |= d.options(trans=lambda: d.pick([0, 1, 2, "T", "C"]), unit_diagonal=lambda: True)
        return [x, _rhs(d, x)], kwargs
    if d.name == "linalg.solve":
        kwargs |= d.options(assume_a=lambda: d.pick(["gen", "sym", "her", "pos", "no"]))
        return [x, _rhs(d, x)], kwargs
    if d.name == "linalg.cho_solve":
        x = {"a": [x["a"][0], *x["a"][1:3], "definite"]}
        return [{"t": [x, d.pick([True, False])]}, _rhs(d, x)], {}
    return [x], kwargs


def spectral(d: Draw) -> Call:
    return [_matrix(d)], {"eigvals_only": True} | d.options(lower=lambda: d.pick([True, False]))


def singular(d: Draw) -> Call:
    x = d.array(d.pick([(2, 3), (3, 2), (2, 2, 3), (0, 2)]), INEXACT, plain=True)
    return [x], {"compute_uv": False} | d.options(full_matrices=lambda: False)


def triangle_of_qr(d: Draw) -> Call:
    x = d.array(d.pick([(2, 3), (3, 2), (2, 2, 3), (0, 2)]), INEXACT, plain=True)
    return [x], d.options(mode=lambda: d.pick(["full", "economic", "r", "no"]))


def polar(d: Draw) -> Call:
    return [_matrix(d)], d.options(
        side=lambda: d.pick(["left", "right", "no"]), method=lambda: d.pick(["qdwh", "svd"])
    )


def exponential(d: Draw) -> Call:
    return [_matrix(d, "unit", NARROW)], d.options(upper_triangular=lambda: True)


def frechet(d: Draw) -> Call:
    x = _matrix(d, "unit", ["float32", "float64"])
    return [x, {"a": [x["a"][0], _size(x), d.random.randrange(50), "unit"]}], d.options(
        compute_expm=lambda: d.pick([True, False])
    )


def tridiagonal(d: Draw) -> Call:
    n = d.pick([1, 2, 4])
    dtype = d.pick(["float32", "float64"])
    of = lambda k: {"a": [dtype, [k], d.random.randrange(50), "usual"]}
    return [of(n), of(n - 1)], {"eigvals_only": d.chance(0.9)}


def sylvester(d: Draw) -> Call:
    dtype = d.pick(["float32", "complex64"])
    of = lambda *s: {"a": [dtype, list(s), d.random.randrange(50), "definite" if s[0] == s[1] else
                           "usual"]}  # fmt: skip
    return [of(2, 2), of(3, 3), of(2, 3)], {}


def of_vectors(d: Draw) -> Call:
    n = (
        1
        if d.name.split(".")[1] in ("circulant", "companion", "fiedler", "fiedler_companion")
        else 2
    )
    shapes = (
        [(4,), (3,)] if "companion" in d.name else d.pick([[(3,)] * 2, [(1,), (4,)], [(2, 2)] * 2])
    )
    if d.name == "linalg.leslie":
        shapes = d.pick([[(3,), (2,)], [(2,), (1,)], [(3,), (3,)]])
    args = [d.array(s, NARROW) for s in shapes[:n]]
    return (args[:1] if n == 2 and "leslie" not in d.name and d.chance(0.3) else args), {}


def of_orders(d: Draw) -> Call:
    n = d.pick([0, 1, 2, 3, 4, 5, -1, 2.0])
    kwargs = {}
    if d.name == "linalg.dft":
        kwargs = d.options(scale=lambda: d.pick(["sqrtn", "n", None, "no"]))
    elif "pascal" in d.name:
        kwargs = d.options(kind=lambda: d.pick(["symmetric", "lower", "upper", "no"]))
    elif d.name == "linalg.helmert":
        kwargs = d.options(full=lambda: True)
    elif d.name == "linalg.hadamard":
        kwargs = d.options(dtype=d.as_dtype)
    return [n], kwargs


def blocks(d: Draw) -> Call:
    return [
        d.array(d.pick([(2, 3), (1, 1), (2,), (), (0, 2)])) for _ in range(d.pick([1, 2, 3]))
    ], {}


def convolution_matrix(d: Draw) -> Call:
    return [d.array(d.pick([(3,), (1,), (4,)])), d.pick([1, 2, 5, 0])], d.options(
        mode=lambda: d.pick(["full", "same", "valid", "no"])
    )


def convolving(d: Draw) -> Call:
    shapes = d.pick([[(4,), (2,)], [(2,), (4,)], [(1,), (3,)], [(3, 4), (2, 2)], [(0,), (2,)]])
    if d.name.endswith("2d"):
        shapes = d.pick([[(3, 4), (2, 2)], [(2, 2), (3, 3)], [(3, 4), (1, 1)], [(3,), (2,)]])
    kwargs = d.options(mode=lambda: d.pick(["full", "same", "valid", "no"]))
    if d.name.split(".")[1] in ("convolve", "correlate"):
        kwargs |= d.options(method=lambda: d.pick(["direct", "fft", "auto"]))
    elif d.name.endswith("2d"):
        kwargs |= d.options(boundary=lambda: d.pick(["fill", "fill", "wrap"]))
    else:
        kwargs |= d.options(axes=lambda: d.pick([0, -1, [0], [5]]))
    return [d.array(s, NARROW) for s in shapes], kwargs


def detrending(d: Draw) -> Call:
    return [d.array(d.pick([(6,), (4, 3), (1, 4)]), USUAL)], d.options(
        axis=d.one_axis,
        type=lambda: d.pick(["linear", "constant", "no"]),
        bp=lambda: d.pick([0, 2]),
    )


def spectra(d: Draw) -> Call:
    x = d.array(d.pick([(16,), (2, 12), (9,)]), ["float32", "float32", "float64", "complex64"])
    kwargs = {"nperseg": d.pick([4, 8, 5])} | d.options(
        fs=lambda: d.pick([2.0, 10]),
        window=lambda: d.pick(["hann", "boxcar", "hamming"]),
        noverlap=lambda: d.pick([0, 2, 3]),
        nfft=lambda: d.pick([8, 16]),
        detrend=lambda: d.pick([False, "linear", "constant"]),
        return_onesided=lambda: False,
        axis=lambda: d.pick([0, -1]),
    )
    if d.name == "signal.stft":
        kwargs |= d.options(boundary=lambda: d.pick(["zeros", "even", "odd", None]),
                            padded=lambda: False)  # fmt: skip
        return [x], kwargs
    kwargs |= d.options(scaling=lambda: d.pick(["density", "spectrum"]),
                        average=lambda: d.pick(["mean", "median"]))  # fmt: skip
    return ([x, d.pick([x, x, None])] if d.name == "signal.csd" else [x]), kwargs


def inverse_spectrum(d: Draw) -> Call:
    z = {"a": ["complex64", d.pick([[5, 4], [3, 6], [2, 5, 4]]), d.random.randrange(50), "usual"]}
    return [z], d.options(window=lambda: d.pick(["hann", "boxcar"]), boundary=lambda: False,
                          fs=lambda: 2.0)  # fmt: skip


def coordinates(d: Draw) -> Call:
    shape = d.pick([(4,), (3, 4), (1, 3)])
    points = d.pick([(3,), (2, 2), (), (0,)])
    where = [d.array(points, ["float32", "float32", "int32"], "positive") for _ in shape]
    x = d.array(shape, ["float32", "float32", "int32", "float64", "complex64", "uint8"], plain=True)
    return [x, d.pick([where, {"t": where}]), d.pick([0, 1, 1, 2])], d.options(
        mode=lambda: d.pick(["nearest", "wrap", "mirror", "reflect", "constant", "no"]),
        cval=lambda: d.pick([1.5, -1]),
    )


def cosine(d: Draw) -> Call:
    x = d.array(d.pick([(4,), (3, 4), (1,), (5,)]), FLOATS + ["float32", "int32"])
    kwargs = d.options(
        type=lambda: d.pick([2, 2, 1, 3]), norm=lambda: d.pick(["ortho", None, "no"])
    )
    if d.name.endswith("n"):
        kwargs |= d.options(axes=lambda: d.pick([[0], {"t": [0, 1]}, None]), s=lambda: [3])
    else:
        kwargs |= d.options(n=lambda: d.pick([3, 6, 0]), axis=d.one_axis)
    return [x], kwargs


def trapezoid(d: Draw) -> Call:
    y = d.array(d.pick([(3,), (2, 3), (1,), (0,)]))
    return [y], d.options(x=lambda: d.array(d.pick([(3,), (2, 3)])), dx=lambda: d.pick([0.5, 2]),
                          axis=d.one_axis)  # fmt: skip


def codes(d: Draw) -> Call:
    dtype = d.pick(["float32", "float64", "int32", "bfloat16"])
    shapes = d.pick([[(4, 2), (3, 2)], [(1, 1), (2, 1)], [(4,), (3,)], [(4, 2), (3, 3)]])
    return [d.array(s, [dtype], plain=True) for s in shapes], {}


FAMILIES: dict[Family, str] = {
    square: "linalg.det linalg.inv linalg.cholesky linalg.lu_factor linalg.sqrtm linalg.lu",
    triangular: "linalg.cho_factor linalg.solve_triangular linalg.solve linalg.cho_solve",
    spectral: "linalg.eigh",
    singular: "linalg.svd",
    triangle_of_qr: "linalg.qr",
    polar: "linalg.polar",
    exponential: "linalg.expm",
    frechet: "linalg.expm_frechet",
    tridiagonal: "linalg.eigh_tridiagonal",
    sylvester: "linalg.solve_sylvester",
    of_vectors: """linalg.circulant linalg.companion linalg.fiedler linalg.fiedler_companion
        linalg.hankel linalg.toeplitz linalg.leslie""",
    of_orders: """linalg.dft linalg.hadamard linalg.helmert linalg.hilbert linalg.invhilbert
        linalg.pascal linalg.invpascal""",
    blocks: "linalg.block_diag",
    convolution_matrix: "linalg.convolution_matrix",
    convolving: """signal.convolve signal.correlate signal.convolve2d signal.correlate2d
        signal.fftconvolve""",
    detrending: "signal.detrend",
    spectra: "signal.stft signal.csd signal.welch",
    inverse_spectrum: "signal.istft",
    coordinates: "ndimage.map_coordinates",
    cosine: "fft.dct fft.idct fft.dctn fft.idctn",
    trapezoid: "integrate.trapezoid",
    codes: "cluster.vq.vq",
}
