"""Rotations in three dimensions: `scipy.spatial.transform`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.numpy._util import ArrayLike, promote_dtypes_inexact

__all__ = ["Rotation", "Slerp"]

# Below this angle series are used, which have no division by it.
_SMALL = 1e-3


def _length(v: Array) -> Array:
    """The length of vectors along the last axis, kept; with derivative zero at zero."""
    square = jnp.sum(v * v, axis=-1, keepdims=True)
    zero = square == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, square)))


def _axes(seq: str, count: Sequence[int]) -> tuple[list[int], bool]:
    """The axes that a sequence names, and whether they turn with the body (capitals)."""
    if len(seq) not in count:
        raise ValueError(
            f"Expected axis specification to be a non-empty string of upto 3 characters, got {seq}"
            if len(count) > 1
            else f"Expected 3 axes, got {seq}."
        )
    if not (re.fullmatch("[xyz]+", seq) or re.fullmatch("[XYZ]+", seq)):
        raise ValueError(
            f"Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}"
        )
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(axis) for axis in seq.lower()], seq.isupper()


def _product(p: Array, q: Array) -> Array:
    """The product of quaternions."""
    p, q = jnp.broadcast_arrays(*promote_dtypes_inexact(p, q))
    vector = p[..., 3:] * q[..., :3] + q[..., 3:] * p[..., :3] + jnp.cross(p[..., :3], q[..., :3])
    scalar = p[..., 3:] * q[..., 3:] - jnp.sum(p[..., :3] * q[..., :3], axis=-1, keepdims=True)
    return jnp.concatenate([vector, scalar], axis=-1)


def _about_axis(axis: int, angle: Array) -> Array:
    parts = [jnp.zeros_like(angle)] * 3 + [jnp.cos(angle / 2)]
    parts[axis] = jnp.sin(angle / 2)
    return jnp.stack(parts, axis=-1)


class Rotation(NamedTuple):
    """Rotations, held as unit quaternions `(x, y, z, w)` of shape `(4,)` or `(n, 4)`.

    They are pytrees and work under all transformations.

    Args:
      quat: the quaternions, scalar last; methods such as `from_euler` make them.

        >>> turn = amdjax.scipy.spatial.transform.Rotation.from_euler("z", 90.0, degrees=True)
        >>> jnp.round(turn.apply(jnp.array([1.0, 0.0, 0.0])), 3)
        Array([0., 1., 0.], dtype=float32)
    """

    quat: Array

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Several arrays of rotations as one."""
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations about up to three axes in turn.

        Args:
          seq: the axes; small letters for those of space, capitals for those of the body.
          angles: of shape `(..., len(seq))`, or one number.
          degrees: whether they are in degrees.

        Raises:
          ValueError: `seq` is not as said, or names an axis twice in a row.
        """
        axes, intrinsic = _axes(seq, (1, 2, 3))
        (values,) = promote_dtypes_inexact(jnp.atleast_1d(angles))
        if values.shape[-1] != len(axes):
            raise ValueError(
                f"Expected angles for {len(axes)} axes along the last axis, got shape"
                f" {values.shape}"
            )
        if degrees:
            values = jnp.deg2rad(values)
        quat = _about_axis(axes[0], values[..., 0])
        for i in range(1, len(axes)):
            turn = _about_axis(axes[i], values[..., i])
            quat = _product(quat, turn) if intrinsic else _product(turn, quat)
        return cls(quat)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Rotations from orthogonal matrices of shape `(..., 3, 3)`."""
        (m,) = promote_dtypes_inexact(jnp.asarray(matrix))
        trace = jnp.trace(m, axis1=-2, axis2=-1)
        # Each component, from the others' products; the largest divides best.
        largest = [m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace]
        choice = jnp.argmax(jnp.stack(largest, axis=-1), axis=-1)
        candidates = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = [None] * 3 + [m[..., k, j] - m[..., j, k]]
            parts[i] = 1 - trace + 2 * m[..., i, i]
            parts[j] = m[..., j, i] + m[..., i, j]
            parts[k] = m[..., k, i] + m[..., i, k]
            candidates.append(jnp.stack(parts, axis=-1))
        skew = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0]]
        skew += [m[..., 1, 0] - m[..., 0, 1], 1 + trace]
        candidates.append(jnp.stack(skew, axis=-1))
        quat = jnp.select([choice[..., None] == i for i in range(4)], candidates)
        return cls(quat / _length(quat))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Rotations from modified Rodrigues parameters of shape `(..., 3)`."""
        (v,) = promote_dtypes_inexact(jnp.asarray(mrp))
        more = jnp.sum(v * v, axis=-1, keepdims=True) + 1
        return cls(jnp.concatenate([2 * v, 2 - more], axis=-1) / more)

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """Rotations from quaternions of shape `(..., 4)` of any length."""
        (q,) = promote_dtypes_inexact(jnp.asarray(quat))
        return cls(q / _length(q))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations about vectors of shape `(..., 3)`, by their length."""
        (v,) = promote_dtypes_inexact(jnp.asarray(rotvec))
        if degrees:
            v = jnp.deg2rad(v)
        angle = _length(v)
        square = angle * angle
        small = angle <= _SMALL
        series = 0.5 - square / 48 + square * square / 3840
        scale = jnp.where(small, series, jnp.sin(angle / 2) / jnp.where(small, 1, angle))
        return cls(jnp.concatenate([scale * v, jnp.cos(angle / 2)], axis=-1))

    @classmethod
    def identity(cls, num: None = None, dtype: Any = float) -> Rotation:
        """The rotation that moves nothing; `num` must be None."""
        if num is not None:
            raise NotImplementedError(f"Rotation.identity: num must be None, got {num}")
        return cls(jnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype))

    @classmethod
    def random(cls, random_key: Array, num: int | None = None) -> Rotation:
        """Refused, as in JAX: normalize four normal numbers instead."""
        raise NotImplementedError(
            "Rotation.random: use Rotation.from_quat(random.normal(key, (4,)))"
        )

    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        """Some of the rotations."""
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        """How many rotations there are."""
        if self.single:
            raise TypeError("Single rotation has no len().")
        return int(self.quat.shape[0])

    def __mul__(self, other: Rotation) -> Rotation:  # type: ignore[override]
        """The rotation by `other`, then by `self`."""
        return Rotation.from_quat(_product(self.quat, other.quat))

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Vectors of shape `(..., 3)`, turned; the other way round if `inverse`."""
        matrix, v = promote_dtypes_inexact(self.as_matrix(), jnp.asarray(vectors))
        if inverse:
            matrix = jnp.matrix_transpose(matrix)
        return jnp.vectorize(jnp.matmul, signature="(n,n),(n)->(n)")(matrix, v)

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """The angles about three axes; see `from_euler`.

        Where the second angle leaves only a sum or difference of the others, the third is zero.

        Source: Bernardes and Viollet, "Quaternion to Euler angles conversion", 2022.
        """
        axes, intrinsic = _axes(seq, (3,))
        i, j, k = axes[::-1] if intrinsic else axes
        symmetric = i == k
        if symmetric:
            k = 3 - i - j
        sign = (i - j) * (j - k) * (k - i) // 2
        q = [self.quat[..., n] for n in range(4)]
        if symmetric:
            a, b, c, d = q[3], q[i], q[j], q[k] * sign
        else:
            a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
        second = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        least = 1e-7
        first, third = half_sum - half_difference, half_sum + half_difference
        if intrinsic:
            first, third = third, first
        flat, folded = jnp.abs(second) <= least, jnp.abs(second - math.pi) <= least
        alone = jnp.where(flat, 2 * half_sum, 2 * half_difference * (1 if intrinsic else -1))
        first, third = (jnp.where(flat | folded, x, y) for x, y in ((alone, first), (0, third)))
        if not symmetric:
            second = second - math.pi / 2
            first, third = (first * sign, third) if intrinsic else (first, third * sign)
        angles = jnp.stack([first, second, third], axis=-1)
        angles = (angles + math.pi) % (2 * math.pi) - math.pi
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Array:
        """Orthogonal matrices of shape `(..., 3, 3)`."""
        x, y, z, w = (self.quat[..., n] for n in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
        ]
        return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters of shape `(..., 3)`."""
        sign = jnp.where(self.quat[..., 3:] < 0, -1.0, 1.0).astype(self.quat.dtype)
        return sign * self.quat[..., :3] / (1 + sign * self.quat[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes of shape `(..., 3)`, as long as the angle."""
        q = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2 * jnp.arctan2(_length(q[..., :3]), q[..., 3:])
        square = angle * angle
        small = angle <= _SMALL
        series = 2 + square / 12 + 7 * square * square / 2880
        scale = jnp.where(small, series, angle / jnp.sin(jnp.where(small, 1, angle) / 2))
        vectors = scale * q[..., :3]
        return jnp.rad2deg(vectors) if degrees else vectors

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Unit quaternions of shape `(..., 4)`.

        Args:
          canonical: of the two of each rotation the one whose last component, or if it is zero the
            first other that is not, is positive.
          scalar_first: put the last component first.
        """
        q = self.quat
        if canonical:
            leading = jnp.zeros_like(q[..., 3])
            for n in (3, 0, 1, 2):
                leading = jnp.where(leading == 0, q[..., n], leading)
            q = jnp.where(leading[..., None] < 0, -q, q)
        return jnp.roll(q, 1, axis=-1) if scalar_first else q

    def inv(self) -> Rotation:
        """The rotations back."""
        return Rotation(jnp.concatenate([-self.quat[..., :3], self.quat[..., 3:]], axis=-1))

    def magnitude(self) -> Array:
        """The angles, in radians."""
        sine = _length(self.quat[..., :3])[..., 0]
        return 2 * jnp.arctan2(sine, jnp.abs(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The rotation least far, in squares, from all.

        Args:
          weights: of shape `(n,)`.

        Raises:
          ValueError: there are not as many weights as rotations.
        """
        dtype = self.quat.dtype
        n = self.quat.shape[0]
        w = jnp.ones(n, dtype) if weights is None else jnp.asarray(weights, dtype)
        if w.ndim != 1:
            raise ValueError(f"Expected `weights` to be 1 dimensional, got shape {w.shape}.")
        if w.shape[0] != len(self):
            raise ValueError(
                "Expected `weights` to have number of values equal to number of rotations, got"
                f" {w.shape[0]} values and {len(self)} rotations."
            )
        return Rotation(jnp.linalg.eigh((w[None, :] * self.quat.T) @ self.quat)[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation rather than an array of them."""
        return bool(self.quat.ndim == 1)


class Slerp(NamedTuple):
    """Rotations between others, at constant speed along the shortest way.

    Args:
      times: when the rotations are reached, rising; `Slerp.init` computes the rest.
      timedelta: differences between them.
      rotations: those at `times` but the last.
      rotvecs: rotation vectors from each to the next, of shape `(n, 3)`.

      >>> turns = amdjax.scipy.spatial.transform.Rotation.from_euler("z", jnp.array([[0.0], [2.0]]))
      >>> between = amdjax.scipy.spatial.transform.Slerp.init(jnp.array([0.0, 1.0]), turns)
      >>> jnp.round(between(0.5).magnitude(), 3)
      Array(1., dtype=float32)
    """

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: ArrayLike, rotations: Rotation) -> Slerp:
        """From rotations and their times.

        Args:
          times: rising, of shape `(n,)`.
          rotations: `n` of them, at least two.

        Raises:
          TypeError: `rotations` is no `Rotation`.
          ValueError: there are fewer than two rotations, or not as many times.
        """
        if not isinstance(rotations, Rotation):
            raise TypeError(f"`rotations` must be a `Rotation` instance, got {type(rotations)}.")
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        at = jnp.asarray(times, dtype=rotations.quat.dtype)
        if at.ndim != 1:
            raise ValueError(
                "Expected times to be specified in a 1 dimensional array, got"
                f" {at.ndim} dimensions."
            )
        if at.shape[0] != len(rotations):
            raise ValueError(
                "Expected number of rotations to be equal to number of timestamps given, got"
                f" {len(rotations)} rotations and {at.shape[0]} timestamps."
            )
        before, after = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(at, jnp.diff(at), before, (before.inv() * after).as_rotvec())

    def __call__(self, times: ArrayLike) -> Rotation:
        """The rotations at some times, a number or an array of one axis."""
        at = jnp.asarray(times, dtype=self.times.dtype)
        if at.ndim > 1:
            raise ValueError(f"`times` must be at most 1-dimensional, got shape {at.shape}.")
        many = jnp.atleast_1d(at)
        piece = jnp.maximum(jnp.searchsorted(self.times, many) - 1, 0)
        share = (many - self.times[piece]) / self.timedelta[piece]
        turn = Rotation.from_rotvec(self.rotvecs[piece] * share[:, None])
        result = Rotation(_product(self.rotations.quat[piece], turn.quat))
        return Rotation(result.quat[0]) if at.ndim == 0 else result


_public_surface(globals())
