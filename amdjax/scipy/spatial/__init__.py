"""Space: `scipy.spatial`."""

from amdjax.scipy.spatial import transform as transform
