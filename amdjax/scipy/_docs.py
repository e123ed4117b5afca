"""What the docstrings of `amdjax.scipy.linalg`, `signal` and `fft` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

_TYPE = "NotImplementedError: `type` is not 2."

LINALG = Phrases(
    {
        "a": "of shape `(..., n, n)`.",
        "n": "rows and columns.",
        "c": "the first column, of shape `(..., m)`.",
        "debug": "has no effect.",
        "eigvals_only": "return the eigenvalues alone.",
        "overwrite_a": "has no effect: arrays are immutable.",
        "overwrite_b": "has no effect: arrays are immutable.",
        "check_finite": "has no effect: what is not finite gives NaN.",
        "pivoting": "exchange columns so that the diagonal of `R` falls.",
    }
)
MATRICES = (
    Family("hilbert invhilbert hadamard dft", "A matrix of shape `(n, n)`."),
    Family("pascal invpascal", "A matrix of shape `(n, n)`.", "ValueError: `kind` is unknown."),
    Family("cho_solve lu_solve solve_triangular solve", "`x`, of the shape of `b`.",
           b="of shape `(n,)` or `(..., n, k)`."),
    Family("circulant leslie fiedler", "Matrices of shape `(..., n, n)`."),
    Family("companion fiedler_companion", "Matrices of shape `(..., n - 1, n - 1)`."),
    Family("toeplitz hankel", "Matrices of shape `(..., m, n)`."),
    Family("eigh eigh_tridiagonal", "`(w, v)`, or `w`."),
)  # fmt: skip
SIGNAL = Phrases(
    {
        "average": 'over the segments, "mean" or "median".',
        "boundary": 'must be "fill".',
        "fillvalue": "must be 0.",
        "in1": "an array.",
        "in2": "an array of the same rank.",
        "mode": '"full", "same" (the size of `in1`, centered) or "valid" (where both overlap).',
        "precision": "that of the sums.",
        "axis": "along which.",
        "fs": "samples in a unit of time.",
        "noverlap": "samples that neighboring segments share; half a segment by default.",
        "nfft": "length to which segments are padded with zeros; `nperseg` by default.",
        "detrend": '"constant", "linear", a function of segments, or False.',
        "nperseg": "samples in a segment.",
        "scaling": '"density" for a density in frequency, "spectrum" for a power.',
        "window": "the name of a window, as `scipy.signal.get_window` takes it, or its values.",
        "x": "signals.",
        "return_onesided": "leave out negative frequencies of real signals.",
    }
)
_MATRICES = (
    "ValueError: `mode` is unknown, an argument is no matrix or the shapes do not fit.",
    "NotImplementedError: `boundary` or `fillvalue` is not as said.",
)
_METHOD = '"direct" or "auto" for sums of products, "fft" for Fourier transforms.'
SIGNALS = (
    Family("csd welch", "Frequencies, and the density at each.",
           "ValueError: a size or a name is not allowed; the message says which."),
    Family("stft", "", "ValueError: a size or a name is not allowed; the message says which."),
    Family("convolve", "The convolution.",
           "ValueError: `mode` or `method` is unknown, an array is empty or the shapes do not fit.",
           method=_METHOD),
    Family("correlate", "The correlation.",
           "ValueError: `mode` or `method` is unknown, an array is empty or the shapes do not fit.",
           method=_METHOD),
    Family("fftconvolve", "The convolution."),
    Family("convolve2d", "The convolution.", *_MATRICES),
    Family("correlate2d", "The correlation.", *_MATRICES),
)  # fmt: skip
FFT = (
    Family("dct idct", "An array of floats, of the shape of `x` but for `n`.", _TYPE,
           "ValueError: `norm` is unknown."),
    Family("dctn idctn", "An array of floats, of the shape of `x` but for `s`.", _TYPE,
           "ValueError: `norm` is unknown, or `s` has more entries than `x` has axes."),
)  # fmt: skip
FFT_PHRASES = Phrases(
    {"type": "must be 2.", "x": "an array; of a complex one both parts are transformed."}
)
