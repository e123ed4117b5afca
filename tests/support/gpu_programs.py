"""Training steps of the examples and benchmarks, as small as their networks allow.

Each is a function and its arguments, as in `gpu_cases.CASES`.
"""

from functools import cache, partial

import numpy as np

from amdjax import nn, optim, random
from benchmarks import gpt, lib, resnet, training
from examples import char_lstm, digits

KEY = random.PRNGKey(0)
rng = np.random.default_rng(3)


def digits_step():
    model, optimizer = digits.make_model(KEY), optim.adam(3e-3)
    images = rng.random((8, 8, 8, 1), dtype=np.float32)
    labels = rng.integers(0, digits.CLASSES, 8, dtype=np.int32)
    state = optimizer.init(nn.partition(model)[0])
    return digits.make_train_step(optimizer), model, state, images, labels, KEY


def lstm_step():
    characters, hidden, batch, length = 20, 24, 5, 7
    model = char_lstm.CharLSTM(characters, hidden, 2, key=KEY)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(3e-3))
    zeros = np.zeros((batch, hidden), np.float32)
    ids = rng.integers(0, characters, (length + 1, batch), dtype=np.int32)
    step = char_lstm.make_train_step(optimizer)
    return step, model, optimizer.init(model), ((zeros, zeros),) * 2, ids


def gpt_step():
    """One block of the benchmark's GPT: the others repeat its kernels."""
    params, *batch = gpt._model(rng, True)
    params["blocks"] = params["blocks"][:1]
    step = partial(training._adam_step, lib.load("amdjax", True), gpt._loss)
    return step, params, *training._moments(params), *batch


def resnet_step():
    params, *batch = resnet._model(rng, True)
    return partial(training._sgd_step, lib.load("amdjax", True), resnet._loss), params, *batch


PROGRAMS = {f.__name__: cache(f) for f in (digits_step, lstm_step, gpt_step, resnet_step)}
