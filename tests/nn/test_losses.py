"""Losses against PyTorch's, as `tools/record_torch_losses.py` found them."""

import json
from pathlib import Path

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.test_util import check_grads

CASES = json.loads(Path(__file__).with_name("recorded_losses.json").read_text())
ids = [f"{case['loss']}-{i}" for i, case in enumerate(CASES)]


def of_case(case, dtype):
    """The loss as a function of its floating arguments, and these."""
    arrays = [np.asarray(a) for a in case["args"]]
    if case["loss"] == "ctc_loss":
        arrays[2] = arrays[2].astype(int)  # that of no labels is empty
    options = {k: np.asarray(v) if isinstance(v, list) else v for k, v in case["options"].items()}
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]

    def loss(*values, reduction):
        args = list(arrays)
        for i, value in zip(floats, values):
            args[i] = value
        return getattr(nn, case["loss"])(*args, **options, reduction=reduction)

    return loss, [jnp.asarray(arrays[i], dtype) for i in floats]


@pytest.mark.cpu_only("many cases; every third is tried in single precision on all devices")
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_as_in_pytorch(case):
    with amdjax.enable_x64(True):
        loss, values = of_case(case, np.float64)
        close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12)
        close(loss(*values, reduction="sum"), case["sum"])
        for reduction in ("none", "mean"):
            y, pull = amdjax.vjp(lambda *v: loss(*v, reduction=reduction), *values)
            close(y, case[reduction])
            weights = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
            for ours, theirs in zip(pull(weights), case[f"{reduction}_gradients"]):
                close(ours, theirs)


@pytest.mark.parametrize("case", CASES[::3], ids=ids[::3])
def test_in_single_precision(case):
    loss, values = of_case(case, np.float32)

    @amdjax.jit
    def run(*values):
        y, pull = amdjax.vjp(lambda *v: loss(*v, reduction="none"), *values)
        return y, pull(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

    y, gradients = run(*values)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, case["none"], rtol=2e-5, atol=2e-6)
    for ours, theirs in zip(gradients, case["none_gradients"]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_mean_divides_by_what_counts():
    logits = jnp.zeros((4, 3))
    for labels in ([1, -1, -100, 3], [1, 0, 0, 0]):
        loss = nn.softmax_cross_entropy(logits, jnp.array(labels), ignore_index=0)
        np.testing.assert_allclose(loss, np.log(3), rtol=1e-6)
    nothing = nn.softmax_cross_entropy(logits, jnp.full(4, -1))
    assert np.isnan(nothing)  # no mean of nothing, as in PyTorch


def test_margins_that_are_kept_exactly_do_not_push():
    """Slopes of PyTorch 2.13 where scores differ by the margin."""
    x = np.array([[4.0, 2.0, 3.5, 4.5]], np.float32)
    slope = amdjax.grad(lambda x: nn.multilabel_margin_loss(x, np.array([[3, 0, -1, 1]])))(x)
    np.testing.assert_array_equal(slope, [[-0.25, 0, 0.25, 0]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint16])
def test_labels_of_narrow_integers(dtype):
    """Class numbers that the labels' dtype cannot hold are nobody's label."""
    logits = jnp.arange(600.0).reshape(2, 300)
    labels = np.array([-3, 5]).astype(dtype)  # 253 as uint8
    expected = np.where(labels.astype(int) < 0, 0, 0.458675 + 299 - labels.astype(int))
    losses = nn.softmax_cross_entropy(logits, labels, reduction="none")
    np.testing.assert_allclose(losses, np.where(labels.astype(int) > 299, 0, expected), rtol=1e-4)


def test_sixteen_bit_losses_count_all_examples():
    logits = jnp.zeros((3000, 2), jnp.bfloat16)
    loss = nn.softmax_cross_entropy(logits, jnp.zeros(3000, int))
    assert loss.dtype == jnp.bfloat16
    np.testing.assert_allclose(float(loss), np.log(2), rtol=1e-2)


def halves(*values):
    return [jnp.array(v, np.float16) for v in values]


EXTREME = {  # what float32 holds easily, and float16 only with squares and small constants apart
    "lengths of zero": (nn.cosine_embedding_loss, *halves([[0, 0], [0, 0]], [[1, 1], [0, 0]]),
                        [1, -1]),
    "long vectors": (nn.cosine_embedding_loss, *halves([[300, 400]], [[400, 300]]), [1]),
    "no distance": (nn.triplet_margin_loss, *halves([[1, 2]], [[1, 2]], [[1, 2]])),
    "large distance": (nn.triplet_margin_loss, *halves([[0, 0]], [[300, 400]], [[500, 600]])),
    "certain": (nn.binary_cross_entropy, *halves([0, 1, 1], [0, 1, 0.5])),
    "nothing expected": (lambda *v, **k: nn.poisson_nll_loss(*v, log_predictions=False, **k),
                         *halves([0, 0], [0, 1])),
    "many": (lambda *v, **k: nn.poisson_nll_loss(*v, full=True, **k), *halves([1], [5000])),
    "far": (nn.gaussian_nll_loss, *halves([300], [-300], [60])),
    "easy and hard": (nn.focal_loss, *halves([30, -30, 15], [1, 1, 0])),
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("case", EXTREME)
def test_sixteen_bit_losses_are_rounded_once(case, reduction):
    loss, *args = EXTREME[case]

    def run(dtype):
        values = [a.astype(dtype) for a in args if hasattr(a, "dtype")]
        rest = [jnp.array(a) for a in args if not hasattr(a, "dtype")]
        y, pull = amdjax.vjp(lambda *v: loss(*v, *rest, reduction=reduction), *values)
        return y, *pull(jnp.ones_like(y))

    for got, exact in zip(run(np.float16), run(np.float32), strict=True):
        assert got.dtype == np.float16
        exact = np.clip(np.asarray(exact), -65504, 65504)  # what is larger may be infinite
        got = np.clip(np.asarray(got, np.float32), -65504, 65504)
        np.testing.assert_allclose(got, exact, rtol=2**-8, atol=2**-14)


@pytest.mark.parametrize("gamma", [0, 0.5, 1, 2])
def test_focal_slopes_of_what_is_certain(gamma):
    logits, labels = jnp.array([200.0, -200.0, -200.0]), jnp.array([1.0, 1.0, 0.0])
    slope = amdjax.grad(lambda x: nn.focal_loss(x, labels, gamma=gamma, alpha=None).sum())(logits)
    np.testing.assert_array_equal(slope * 3, [0, -1, 0])


def test_masked_classes_cost_nothing_where_they_are_no_label():
    logits = jnp.array([[1.0, -jnp.inf, 1.0]])
    loss, grad = amdjax.value_and_grad(nn.softmax_cross_entropy)(logits, jnp.array([0]))
    np.testing.assert_allclose(loss, np.log(2), rtol=1e-6)
    np.testing.assert_allclose(grad, [[-0.5, 0, 0.5]], rtol=1e-6)


class TestCTC:
    logits = np.random.default_rng(0).standard_normal((6, 3, 4)).astype(np.float32)
    labels = np.array([[1, 1, 3], [2, 1, 9], [1, -7, 9]])
    counts = np.array([3, 2, 1])
    lengths = np.array([6, 5, 1])

    def loss(self, logits, **options):
        return nn.ctc_loss(logits, self.lengths, self.labels, self.counts, **options)

    def test_by_enumeration(self):
        """The sum over all alignments."""
        p = np.exp(self.logits) / np.exp(self.logits).sum(-1, keepdims=True)
        losses = self.loss(self.logits, reduction="none")
        for b in range(3):
            total = 0.0
            for path in np.ndindex(*(4,) * self.lengths[b]):
                merged = [c for t, c in enumerate(path) if t == 0 or c != path[t - 1]]
                if [c for c in merged if c] == list(self.labels[b, : self.counts[b]]):
                    total += np.prod([p[t, b, c] for t, c in enumerate(path)])
            np.testing.assert_allclose(losses[b], -np.log(total), rtol=1e-5)

    def test_batch_first_and_another_blank(self):
        last = np.roll(self.logits, -1, -1)
        labels = np.where(self.labels > 0, self.labels - 1, 0)
        expected = self.loss(self.logits)
        loss = nn.ctc_loss(last.swapaxes(0, 1), self.lengths, labels, self.counts, blank=3,
                           time_major=False)  # fmt: skip
        np.testing.assert_allclose(loss, expected, rtol=1e-6)

    @pytest.mark.cpu_only("many operations; gradients of single precision run on all devices")
    def test_gradients_of_both_orders_and_directions(self):
        check_grads(lambda x: self.loss(x, reduction="none"), (self.logits,), order=2, rtol=2e-2)

    def test_log_probabilities_are_logits_too(self):
        np.testing.assert_allclose(
            self.loss(nn.log_softmax(self.logits)), self.loss(self.logits), rtol=1e-5
        )

    @pytest.mark.parametrize("zero_infinity", [False, True])
    def test_what_no_alignment_fits(self, zero_infinity):
        options = {"zero_infinity": zero_infinity, "reduction": "sum"}
        lengths = jnp.array([3, 5, 1])  # 1, 1, 3 needs 4 times
        fn = lambda x: nn.ctc_loss(x, lengths, self.labels, self.counts, **options)
        loss, grad = amdjax.value_and_grad(fn)(self.logits)
        assert np.isinf(loss) != zero_infinity
        assert not np.any(grad[:, 0]) and np.any(grad[:5, 1]) and not np.any(grad[5:, 1])

    def test_a_label_that_is_no_class_is_told(self):
        for wrong in (4, -1):
            labels = jnp.array([[1, 1, 3], [2, wrong, 0], [1, 0, 0]])
            losses = nn.ctc_loss(self.logits, self.lengths, labels, self.counts, reduction="none")
            assert list(np.isnan(losses)) == [False, True, False]

    def test_a_length_beyond_the_last_time_is_told(self):
        lengths = jnp.array([7, 6, 6])
        losses = nn.ctc_loss(self.logits, lengths, self.labels, self.counts, reduction="none")
        assert list(np.isnan(losses)) == [True, False, False]

    def test_vmap(self):
        many = np.stack([self.logits, 2 * self.logits])
        each = [self.loss(x) for x in many]
        np.testing.assert_allclose(amdjax.vmap(self.loss)(many), each, rtol=1e-6)

    def test_sixteen_bits_are_added_in_thirty_two(self):
        narrow = jnp.asarray(self.logits, jnp.bfloat16)
        expected = self.loss(narrow.astype(np.float32))
        assert self.loss(narrow).dtype == jnp.bfloat16
        np.testing.assert_allclose(self.loss(narrow).astype(np.float32), expected, rtol=1e-2)


X, LABELS = np.zeros((2, 3), np.float32), np.zeros(2, int)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: nn.softmax_cross_entropy(X, LABELS, weight=X), ValueError, "weight"),
        (lambda: nn.softmax_cross_entropy(X, X, ignore_index=1), ValueError, "ignore_index"),
        (lambda: nn.softmax_cross_entropy(X, LABELS, label_smoothing=2.0), ValueError, "smoothing"),
        (lambda: nn.softmax_cross_entropy(X, LABELS, reduction="max"), ValueError, "reduction"),
        (lambda: nn.nll_loss(X, X), TypeError, "labels"),
        (lambda: nn.nll_loss(X, LABELS[:1]), ValueError, "log_probabilities"),
        (lambda: nn.sigmoid_cross_entropy(X, X, pos_weight=LABELS), ValueError, "pos_weight"),
        (lambda: nn.mae(X, X[:1]), ValueError, "predictions and targets"),
        (lambda: nn.multi_margin_loss(X, LABELS, p=3), ValueError, "p must"),
        (lambda: nn.multi_margin_loss(X, LABELS, weight=X), ValueError, "weight"),
        (lambda: nn.multilabel_margin_loss(X, LABELS), ValueError, "labels"),
        (lambda: nn.cosine_embedding_loss(X, X, X), ValueError, "targets"),
        (lambda: nn.ctc_loss(X, LABELS, LABELS, LABELS), ValueError, "logits"),
        (lambda: nn.ctc_loss(X[None], LABELS, X, LABELS), TypeError, "labels"),
        (lambda: nn.ctc_loss(X[None], LABELS[:1], X.astype(int), LABELS), ValueError, "lengths"),
        (lambda: nn.ctc_loss(X[None], LABELS, X.astype(int), LABELS, blank=3), ValueError, "blank"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, error, said):
    with pytest.raises(error, match=said):
        call()
