"""What the docstrings of `amdjax.scipy.linalg` and of `amdjax.scipy.signal` say alike."""

from __future__ import annotations

from amdjax.core.docs import Phrases

LINALG = Phrases(
    {
        "a": "of shape `(..., n, n)`.",
        "n": "rows and columns.",
        "overwrite_a": "has no effect: arrays are immutable.",
        "overwrite_b": "has no effect: arrays are immutable.",
        "check_finite": "has no effect: what is not finite gives NaN.",
    }
)
SIGNAL = Phrases(
    {
        "in1": "an array.",
        "in2": "an array of the same rank.",
        "mode": '"full", "same" (the size of `in1`, centered) or "valid" (where both overlap).',
        "precision": "that of the sums.",
        "axis": "along which.",
        "fs": "samples in a unit of time.",
        "noverlap": "samples that neighboring segments share; half a segment by default.",
        "nfft": "length to which segments are padded with zeros; `nperseg` by default.",
        "detrend": '"constant", "linear", a function of segments, or False.',
        "return_onesided": "leave out negative frequencies of real signals.",
    }
)
