"""Compile and run the math functions on the host, and measure their errors."""

import ctypes
import functools
import math

import llvmlite.binding as ll
import mpmath as mp
import numpy as np
import scipy.special

from amdjax.codegen.llvm import I64, PTR, Module, Type, const
from amdjax.codegen.math import CONVERSIONS, MATH

ELEMS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'


@functools.cache
def host_machine():
    ll.initialize_native_target()
    ll.initialize_native_asmprinter()
    features = ll.get_host_cpu_features()
    target = ll.Target.from_triple(ll.get_process_triple())
    machine = target.create_target_machine(
        cpu=ll.get_host_cpu_name(), features=features.flatten(), opt=3, jit=True
    )
    native = frozenset({"ldexp"}) if features.get("avx512f") else frozenset()
    return machine, native


def build(emit, ins, out, lanes, *, triple, native=frozenset(), pointer=PTR, convention="") -> str:
    """IR of `kernel(*inputs, output, count)`, which applies `emit(f, *values)` to vectors."""
    module = Module(triple=triple, native=native)
    args = [(f"x{i}", pointer) for i in range(len(ins))] + [("out", pointer), ("n", I64)]
    f = module.function("kernel", args, attributes=ATTRIBUTES, convention=convention)
    *inputs, output, n = f.args

    def body(i, carried):
        xs = [
            f.load(Type(e, lanes), f.gep(p, i, Type(e)), align=1)
            for p, e in zip(inputs, ins, strict=True)
        ]
        f.store(emit(f, *xs), f.gep(output, i, Type(out)), align=1)
        return []

    f.loop(const(I64, 0), n, max(lanes, 1), [], body)
    f.ret()
    return str(module)


def optimize(ir: str, machine):
    module = ll.parse_assembly(ir)
    module.verify()
    builder = ll.create_pass_builder(machine, ll.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return module


class Kernel:
    """A compiled loop over arrays; `assembly` is its machine code as text."""

    def __init__(self, emit, ins, out, lanes, native=None):
        machine, native_here = host_machine()
        native = native_here if native is None else native
        ir = build(emit, ins, out, lanes, triple=ll.get_process_triple(), native=native)
        module = optimize(ir, machine)
        self.lanes = max(lanes, 1)
        self.assembly = machine.emit_assembly(module)
        self._jit = ll.create_lljit_compiler(machine)
        builder = ll.JITLibraryBuilder().add_ir(module).export_symbol("kernel")
        self._library = builder.link(self._jit, f"math{id(self)}")
        types = [ctypes.c_void_p] * (len(ins) + 1) + [ctypes.c_int64]
        self.run = ctypes.CFUNCTYPE(None, *types)(self._library["kernel"])

    def __call__(self, *xs, dtype):
        n = xs[0].size
        pad = -n % self.lanes
        xs = [np.concatenate([x, np.ones(pad, x.dtype)]) for x in xs]
        out = np.empty(n + pad, dtype)
        self.run(*(x.ctypes.data for x in xs), out.ctypes.data, n + pad)
        return out[:n]


@functools.cache
def math_kernel(name, elem, arity, lanes, native, options):
    def emit(f, *xs):
        return MATH[name](f, *xs, **dict(options))

    return Kernel(emit, [elem] * arity, elem, lanes, native)


def evaluate(name, *xs, lanes=None, native=None, **options):
    """A math function by name, of flat arrays of one float dtype."""
    xs = [np.ascontiguousarray(x) for x in xs]
    dtype = xs[0].dtype
    lanes = 64 // dtype.itemsize if lanes is None else lanes
    kernel = math_kernel(name, ELEMS[dtype], len(xs), lanes, native, tuple(options.items()))
    return kernel(*xs, dtype=dtype)


@functools.cache
def conversion_kernel(source, target, elems, lanes):
    def emit(f, x):
        x = f.cast("trunc", x, "i1") if source == "bool" else x
        y = CONVERSIONS[source, target](f, x)
        return f.cast("zext", y, "i8") if target == "bool" else y

    return Kernel(emit, [elems[0]], elems[1], lanes)


def random_bits(n, dtype, seed=0):
    """Every sign, exponent, NaN and subnormal is likely."""
    bits = np.uint32 if dtype == np.float32 else np.uint64
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(bits).max, n, dtype=bits, endpoint=True).view(dtype)


def ulp_errors(got, want):
    """Errors of float32 results in ulp of the float64 reference; infinite for a wrong special."""
    want = want.astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(want)))
        exponent = np.clip(np.where(np.isfinite(exponent), exponent, -126), -126, 127)
        error = np.abs(got.astype(np.float64) - want) / np.exp2(exponent - 23)
        rounded = want.astype(np.float32)
        # Beyond the largest number, infinity and that number are both near.
        same = (got == rounded) | (np.isnan(got) & np.isnan(want))
        overflow = np.isinf(got) & (np.abs(want) > np.finfo(np.float32).max)
        error = np.where(same & ~np.isfinite(rounded) | overflow, 0.0, error)
    return np.where(np.isnan(error), np.inf, error)


def ulp_errors_mpmath(got, xs, f, precision=250):
    """The same for either dtype against an mpmath function."""
    info = np.finfo(got.dtype)
    errors = np.zeros(got.size)
    for i, y in enumerate(got):
        with mp.workprec(precision):
            want = _call_mpmath(f, [mp.mpf(float(x[i])) for x in xs])
            if want is None or np.isnan(y):
                errors[i] = 0.0 if want is None and np.isnan(y) else np.inf
            elif mp.isinf(want) or np.isinf(y):
                overflow = abs(want) > float(info.max) and np.sign(y) == mp.sign(want)
                errors[i] = 0.0 if overflow or float(want) == y else np.inf
            elif want == 0:
                errors[i] = 0.0 if y == 0 else np.inf
            else:
                exponent = max(mp.frexp(want)[1] - 1, int(info.minexp))
                errors[i] = abs(mp.mpf(float(y)) - want) / mp.mpf(2) ** (exponent - info.nmant)
    return errors


def _call_mpmath(f, args):
    try:
        y = f(*args)
    except (ValueError, ZeroDivisionError, OverflowError, mp.libmp.ComplexResult):
        return None
    return None if isinstance(y, mp.mpc) or mp.isnan(y) else y


def _exact_angle(f):
    """The largest angles need as many bits as their exponents have."""

    def call(x):
        with mp.workprec(1400):
            return f(x)

    return call


def _logistic(x):
    return 1 / (1 + np.exp(-x))


# name: (float64 reference, mpmath reference, lowest and highest argument of a dense sample)
REFERENCES = {
    "exp": (np.exp, mp.exp, -104, 89),
    "exp2": (np.exp2, lambda x: mp.mpf(2) ** x, -150, 128),
    "expm1": (np.expm1, mp.expm1, -20, 89),
    "log": (np.log, mp.log, 0, 3),
    "log2": (np.log2, lambda x: mp.log(x) / mp.log(2), 0, 3),
    "log10": (np.log10, lambda x: mp.log(x) / mp.log(10), 0, 3),
    "log1p": (np.log1p, mp.log1p, -1, 3),
    "logistic": (_logistic, lambda x: 1 / (1 + mp.exp(-x)), -104, 20),
    "sin": (np.sin, _exact_angle(mp.sin), -100, 100),
    "cos": (np.cos, _exact_angle(mp.cos), -100, 100),
    "tan": (np.tan, _exact_angle(mp.tan), -100, 100),
    "asin": (np.arcsin, mp.asin, -1, 1),
    "acos": (np.arccos, mp.acos, -1, 1),
    "atan": (np.arctan, mp.atan, -10, 10),
    "sinh": (np.sinh, mp.sinh, -3, 3),
    "cosh": (np.cosh, mp.cosh, -90, 90),
    "tanh": (np.tanh, mp.tanh, -10, 10),
    "asinh": (np.arcsinh, mp.asinh, -5, 5),
    "acosh": (np.arccosh, mp.acosh, 1, 3),
    "atanh": (np.arctanh, mp.atanh, -1, 1),
    "sqrt": (np.sqrt, mp.sqrt, 0, 5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: 1 / mp.sqrt(x), 0, 5),
    "cbrt": (np.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), -5, 5),
    "erf": (scipy.special.erf, mp.erf, -4.5, 4.5),
    "erfc": (scipy.special.erfc, mp.erfc, -4, 10.1),
    "erf_inv": (scipy.special.erfinv, mp.erfinv, -1, 1),
    "lgamma": (scipy.special.gammaln, mp.loggamma, 0, 15),
    "digamma": (scipy.special.digamma, mp.digamma, 0, 15),
    "bessel_i0e": (scipy.special.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), -30, 30),
    "bessel_i1e": (scipy.special.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), -30, 30),
    "pow": (np.power, mp.power, 0, 10),
    "atan2": (np.arctan2, mp.atan2, -10, 10),
}
BINARY = ("pow", "atan2")
POSITIVE = ("lgamma", "digamma")
# Where the references take long, or lose their meaning.
SLOW = ("lgamma", "digamma", "bessel_i0e", "bessel_i1e", "erf_inv", "erfc", "erf")
LARGEST = {
    "exp": 800, "exp2": 1100, "expm1": 800, "logistic": 800, "sinh": 800, "cosh": 800, "tanh": 800,
    "erf": 50, "erfc": 50, "bessel_i0e": 1e6, "bessel_i1e": 1e6, "lgamma": 1e300, "digamma": 1e300,
}  # fmt: skip


def sample(name, dtype, n, seed=0):
    """Arguments: half uniform in the interesting interval, half of random bits."""
    low, high = REFERENCES[name][2:]
    rng = np.random.default_rng(seed)
    columns = []
    for column in range(2 if name in BINARY else 1):
        a, b = (-30, 30) if name == "pow" and column else (low, high)
        dense = rng.uniform(a, b, n // 2).astype(dtype)
        columns.append(np.concatenate([dense, random_bits(n - n // 2, dtype, seed + 1 + column)]))
    if name in POSITIVE:
        columns[0] = np.abs(columns[0])
        columns[0] = columns[0][columns[0] > 0]
    return columns


def measure_float32(name, n=200_000, lanes=None, native=None):
    """The largest error in ulp against float64, and where."""
    xs = sample(name, np.float32, n)
    with np.errstate(all="ignore"):
        want = REFERENCES[name][0](*(x.astype(np.float64) for x in xs))
    errors = ulp_errors(evaluate(name, *xs, lanes=lanes, native=native), want)
    worst = int(errors.argmax())
    return float(errors[worst]), tuple(float(x[worst]) for x in xs)


def measure_mpmath(name, dtype, n):
    """The largest error in ulp against mpmath, and where."""
    xs = sample(name, dtype, n, seed=7)
    fit = np.isfinite(xs[0])
    with np.errstate(invalid="ignore"):
        for x in xs:
            largest = LARGEST.get(name, math.inf)
            fit &= np.isfinite(x) & (np.abs(x.astype(np.float64)) <= largest)
    xs = [x[fit] for x in xs]
    errors = ulp_errors_mpmath(evaluate(name, *xs), xs, REFERENCES[name][1])
    worst = int(errors.argmax())
    return float(errors[worst]), tuple(float(x[worst]) for x in xs)
