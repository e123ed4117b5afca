"""Parameters of PyTorch: layers compute what PyTorch's recorded ones do, and give them back."""

from pathlib import Path

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, random, rnn

pytestmark = pytest.mark.cpu_only("layouts are NumPy's work")
KEY = random.key(0)
RECORDED = np.load(Path(__file__).parent / "recorded" / "torch_layers.npz")
FIRST = {"layout": "channels_first"}


def case(name):
    """State dict, input and result of a recorded case."""
    state = {k.removeprefix(f"{name}/"): RECORDED[k] for k in RECORDED if k.startswith(f"{name}/")}
    return state, RECORDED[f"{name}:x"], RECORDED[f"{name}:y"]


class Network(nn.Module):
    stem: nn.Sequential
    blocks: list
    head: dict

    def __call__(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head["1"](x.reshape(len(x), -1))


def network():
    conv = lambda *sizes: nn.Conv(*sizes, padding="VALID", **FIRST, key=KEY)
    return Network(
        nn.Sequential([conv(2, 4, 3), nn.BatchNorm(4, axis=1), nn.relu]),
        [conv(4, 4, 1), conv(4, 4, 1)],
        {"1": nn.Dense(36, 3, key=KEY)},
    )


def conv(kind, *sizes, **options):
    return lambda last: kind(*sizes, **options, key=KEY, **({} if last else FIRST))


LAYERS = {
    "linear": lambda: nn.Dense(3, 4, key=KEY),
    "linear without bias": lambda: nn.Dense(3, 4, use_bias=False, key=KEY),
    "batch_norm1d": lambda: nn.BatchNorm(3),
    "batch_norm2d": lambda: nn.BatchNorm(3, axis=1, affine=False),
    "layer_norm": lambda: nn.LayerNorm(5),
    "group_norm": lambda: nn.GroupNorm(6, groups=2, axis=1),
    "rms_norm": lambda: nn.RMSNorm(5),
    "instance_norm": lambda: nn.InstanceNorm(3, axis=1, affine=True),
    "attention": lambda: nn.MultiHeadAttention(8, 2, key=KEY),
    "attention without bias": lambda: nn.MultiHeadAttention(8, 2, use_bias=False, key=KEY),
    "cross attention": lambda: nn.MultiHeadAttention(8, 2, context_features=6, key=KEY),
    "prelu": lambda: nn.PReLU(3),
    "embedding": lambda: nn.Embedding(7, 3, key=KEY),
    "lstm": lambda: rnn.LSTM(3, 4, layers=2, bidirectional=True, key=KEY),
    "lstm projected": lambda: rnn.LSTM(3, 4, projected_features=2, key=KEY),
    "gru": lambda: rnn.GRU(3, 4, layers=2, use_bias=False, key=KEY),
    "rnn": lambda: rnn.RNN(3, 4, activation="relu", bidirectional=True, key=KEY),
    "gru_cell": lambda: rnn.GRUCell(3, 4, key=KEY),
    "network": network,
}
CONVOLUTIONS = {
    "conv1d": conv(nn.Conv, 4, 6, (3,), strides=2, padding=1, groups=2),
    "conv2d": conv(nn.Conv, 3, 5, (3, 2), dilation=(1, 2), padding=[1, 0]),
    "conv3d": conv(nn.Conv, 2, 4, (2, 2, 2), padding="VALID", groups=2, use_bias=False),
    "conv_transpose1d": conv(nn.ConvTranspose, 3, 4, (3,), strides=2, padding=0),
    "conv_transpose2d": conv(nn.ConvTranspose, 4, 6, (3, 2), strides=(2, 3), padding=[1, 0],
                             output_padding=(1, 0), groups=2),
    "conv_transpose3d": conv(nn.ConvTranspose, 2, 3, (2, 2, 2), padding=0, dilation=2),
}  # fmt: skip


def check(layer, name, last=False):
    state, x, expected = case(name)
    loaded = nn.from_torch(state, like=layer)
    more = [RECORDED[f"{name}:context"]] if f"{name}:context" in RECORDED else []
    y = loaded(jnp.asarray(np.moveaxis(x, 1, -1) if last else x), *more)
    y = y[0] if isinstance(y, tuple) else y
    y = np.moveaxis(y, -1, 1) if last else y
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    back = nn.to_torch_state_dict(loaded)
    kept = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    assert back.keys() == kept.keys()
    for key, value in kept.items():
        np.testing.assert_array_equal(back[key], value)
        assert back[key].dtype == value.dtype and back[key].flags.c_contiguous


@pytest.fixture(autouse=True)
def wide():
    with amdjax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    check(LAYERS[name](), name)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("last", [True, False], ids=["last", "first"])
def test_convolutions(name, last):
    check(CONVOLUTIONS[name](last), name, last)


def test_every_recorded_case_is_tried():
    assert {k.split("/")[0].split(":")[0] for k in RECORDED} == {*LAYERS, *CONVOLUTIONS}


class Tensor:
    """As much of a PyTorch tensor as is looked at."""

    def __init__(self, array, dtype="torch.float64"):
        self._array, self.dtype = array, dtype

    detach = cpu = lambda self: self

    def float(self):
        return Tensor(self._array.astype(np.float32))

    def __array__(self, dtype=None, copy=None):
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self._array


class Torch:
    def state_dict(self):
        state, _, _ = case("linear")
        return {"weight": Tensor(state["weight"], "torch.bfloat16"), "bias": Tensor(state["bias"])}


def test_modules_and_dtypes():
    like = nn.Dense(3, 4, key=KEY, dtype=jnp.float32)
    layer = nn.from_torch(Torch(), like=amdjax.eval_shape(lambda: like))
    assert layer.kernel.dtype == layer.bias.dtype == np.float32
    expected = case("linear")[0]["weight"].T.astype(np.float32)
    np.testing.assert_array_equal(layer.kernel, expected)


class Scaled(nn.Module):
    layers: tuple
    scale: amdjax.Array


def test_parameters_outside_of_layers():
    like = Scaled((nn.Dense(3, 4, key=KEY),) * 2, jnp.zeros(3))
    state = nn.to_torch_state_dict(like)
    assert list(state) == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "scale",
    ]  # fmt: skip
    changed = nn.from_torch({**state, "scale": np.arange(3.0)}, like=like)
    np.testing.assert_array_equal(changed.scale, np.arange(3.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("bias"), "bias: missing"),
        (lambda s: s.update(extra=np.zeros(2)), "extra: of no use"),
        (
            lambda s: s.update(weight=s["weight"].T),
            r"weight: has shape \(3, 4\), expected \(4, 3\)",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, words):
    state, _, _ = case("linear")
    change(state)
    with pytest.raises(ValueError, match=words):
        nn.from_torch(state, like=nn.Dense(3, 4, key=KEY))


def test_what_pytorch_has_not():
    lstm = rnn.LSTM(3, 4, peepholes=True, key=KEY)
    with pytest.raises(ValueError, match=r"^to_torch_state_dict: LSTM at 0 has parameters"):
        nn.to_torch_state_dict(nn.Sequential([lstm]))
    with pytest.raises(TypeError, match="source must be"):
        nn.from_torch(3, like=lstm)
