"""Parameters of recurrent layers by gate, in one vector and under PyTorch's names."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import random, rnn

N, M = 3, 4
KEY = random.key(1)


def numbered(net):
    """The same module with a different number everywhere."""
    return net.replace(weights=rnn.unpack(net.params, np.arange(net.params.size)).weights)


def test_gates_are_columns():
    net = numbered(rnn.LSTM(N, M, layers=2, bidirectional=True, peepholes=True, key=KEY))
    layer = net.params.layer(1, "reverse")
    assert layer.gates == ("i", "f", "g", "o")
    for n, name in enumerate(layer.gates):
        gate, columns = layer.gate(name), slice(n * M, (n + 1) * M)
        np.testing.assert_array_equal(gate.input_kernel, net.weights[3].input_kernel[:, columns])
        np.testing.assert_array_equal(gate.hidden_bias, net.weights[3].hidden_bias[columns])
    np.testing.assert_array_equal(layer.gate("o").peephole, net.weights[3].peepholes[2 * M :])
    assert layer.gate("g").peephole is None


@pytest.mark.parametrize("part", ["input_kernel", "hidden_kernel", "input_bias", "hidden_bias"])
@pytest.mark.parametrize("cls", [rnn.LSTM, rnn.GRU, rnn.RNN])
def test_replace_changes_one_part_alone(cls, part):
    net = numbered(cls(N, M, layers=2, bidirectional=True, key=KEY))
    name = net.params.layer(0, "forward").gates[-1]
    gate = net.params.layer(1, "forward").gate(name)
    new = gate.replace(**{part: -getattr(gate, part)})
    got, want = np.asarray(rnn.pack(new)), np.arange(net.params.size, dtype=np.float32)
    place = gate.place(part)
    want[place.offset : place.offset + np.prod(place.shape)] *= -1
    np.testing.assert_array_equal(got, want)
    assert net.replace(weights=new.weights).params == new


def miopen(cell, layers, directions, n=N, m=M):
    """Offsets of MIOpen's tensors: (layer · directions + direction, paramID) and biases alike.

    Its paramID counts the input's gates, then the hidden state's.
    """
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[cell]
    kernels, biases, end = {}, {}, 0
    for out, wide in ((kernels, True), (biases, False)):
        for layer in range(layers):
            for hidden in range(2):
                columns = m if hidden else n if layer == 0 else m * directions
                for d in range(directions):
                    for g in range(gates):
                        out[layer * directions + d, hidden * gates + g] = end
                        end += m * columns if wide else m
    return kernels, biases, end


#: The gates by MIOpen's paramID.
IDS = {"LSTM": "ifog", "GRU": "zrn", "RNN": "h"}


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
def test_packed_in_the_order_of_miopen(cell, bidirectional):
    net = numbered(getattr(rnn, cell)(N, M, layers=3, bidirectional=bidirectional, key=KEY))
    directions = ("forward", "reverse")[: 1 + bidirectional]
    kernels, biases, size = miopen(cell, 3, len(directions))
    assert net.params.size == size
    for layer in range(3):
        for d, direction in enumerate(directions):
            for i, name in enumerate(IDS[cell] * 2):
                side = "input" if i < len(IDS[cell]) else "hidden"
                gate = net.params.layer(layer, direction).gate(name)
                key = layer * len(directions) + d, i
                place = gate.place(f"{side}_kernel")
                assert place.offset == kernels[key]
                # Rows of the packed matrix are hidden features.
                first_row = np.arange(place.offset, place.offset + place.shape[1])
                np.testing.assert_array_equal(getattr(gate, f"{side}_kernel")[:, 0], first_row)
                assert gate.place(f"{side}_bias").offset == biases[key]
                assert getattr(gate, f"{side}_bias")[0] == biases[key]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"peepholes": True, "projected_features": 2, "layers": 2},
        {"bidirectional": True, "use_bias": False, "layers": 2},
    ],
)
def test_unpack_is_the_inverse(options):
    net = rnn.LSTM(N, M, key=KEY, **options)
    again = rnn.unpack(net.params, rnn.pack(net.params))
    amdjax.tree.map(np.testing.assert_array_equal, again.weights, net.params.weights)
    slope = amdjax.grad(lambda v: jnp.sum(rnn.pack(rnn.unpack(net.params, v)) ** 2))
    vector = jnp.arange(float(net.params.size))
    np.testing.assert_array_equal(slope(vector), 2 * vector)


def test_skip_has_no_input_kernel():
    net = rnn.GRU(M, M, input_mode="skip", layers=2, key=KEY)
    gate = net.params.layer(0).gate("r")
    assert gate.input_kernel is None and net.params.layer(1).gate("r").input_kernel is not None
    assert gate.place("hidden_kernel").offset == M * M  # the update gate's comes first
    with pytest.raises(TypeError, match="no 'input_kernel'"):
        gate.place("input_kernel")


@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell", "RNNCell"])
def test_torch_names_of_cells(cell):
    step = getattr(rnn, cell)(N, M, key=KEY)
    state = rnn.to_torch(step)
    assert sorted(state) == ["bias_hh", "bias_ih", "weight_hh", "weight_ih"]
    np.testing.assert_array_equal(state["weight_ih"], step.weights.input_kernel.T)
    other = rnn.from_torch(getattr(rnn, cell)(N, M, key=random.key(2)), state)
    amdjax.tree.map(np.testing.assert_array_equal, other, step)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda net: net.params.layer(2), IndexError, "below 2"),
        (lambda net: net.params.layer(0), ValueError, "direction"),
        (lambda net: net.params.layer(0, "back"), ValueError, "direction"),
        (lambda net: net.params.layer(0, "forward").gate("n"), ValueError, "name must be one of"),
        (lambda net: net.params.layer(0, "forward").replace(bias=1), TypeError, "no field 'bias'"),
        (
            lambda net: net.params.layer(0, "forward").gate("i").replace(input_bias=jnp.ones(3)),
            ValueError,
            "input_bias must have shape",
        ),
        (
            lambda net: net.params.layer(0, "forward").gate("i").replace(peephole=jnp.ones(4)),
            TypeError,
            "no 'peephole'",
        ),
        (lambda net: rnn.unpack(net.params, jnp.ones(3)), ValueError, "vector must have shape"),
        (lambda net: rnn.from_torch(net, {}), ValueError, "differ in bias_hh_l0"),
        (
            lambda net: rnn.to_torch(rnn.LSTM(N, M, peepholes=True, key=KEY)),
            ValueError,
            "neither peepholes",
        ),
        (lambda net: rnn.to_torch(rnn.LSTM(N, M, reverse=True, key=KEY)), ValueError, "reverse"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(rnn.LSTM(N, M, layers=2, bidirectional=True, key=KEY))
