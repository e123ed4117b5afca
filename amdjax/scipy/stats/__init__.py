"""Probability distributions: `scipy.stats`."""

from amdjax.scipy.stats import norm as norm
