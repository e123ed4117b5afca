"""Signals: `scipy.signal`."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.scipy import _docs
from amdjax.scipy.signal.convolution import (
    convolve as convolve,
    convolve2d as convolve2d,
    correlate as correlate,
    correlate2d as correlate2d,
    fftconvolve as fftconvolve,
)
from amdjax.scipy.signal.detrending import detrend as detrend
from amdjax.scipy.signal.spectral import csd as csd, istft as istft, stft as stft, welch as welch

_complete(globals(), _docs.SIGNALS, _docs.SIGNAL)
_public_surface(globals())
