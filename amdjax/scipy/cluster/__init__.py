"""Clusters: `scipy.cluster`."""

from amdjax.scipy.cluster import vq as vq
