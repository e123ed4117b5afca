"""What the docstrings of `amdjax.rnn` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

PHRASES = Phrases(
    {
        "activation": '"tanh" or "relu".',
        "dtype": "dtype of the weights; None means the default float.",
        "h": "hidden state at the start, `(..., m)`; None means zeros.",
        "hidden_features": "number of hidden features.",
        "in_features": "number of input features.",
        "lengths": "how many steps each sequence has, integers of the shape of the batch; None "
        "means all.\n    What lies beyond takes no part: results are zero there, the state at the "
        "end is that of\n    each sequence's last step, and with `reverse` each begins at its own "
        "last step.",
        "reverse": "whether to go from the last step to the first.",
        "time_major": "whether time is the first axis rather than the second.",
        "use_bias": "whether there are biases.",
    }
)

_KEY = "key of the weights' random start."

FAMILIES = (
    Family("rnn_cell lstm_cell gru_cell", x="input of shape `(..., n)`.",
           h="hidden state of shape `(..., m)`."),
    Family("rnn lstm gru",
           x="inputs of shape `(time, ..., n)`; `(batch, time, n)` unless `time_major`."),
    Family("LSTM GRU RNN", key=_KEY, layers="how many layers, each fed by the one before.",
           rate="probability of dropout between layers.", use_bias="whether there are biases.",
           reverse="whether to go from the last step to the first.",
           bidirectional="whether each layer goes both ways, with weights for each, and gives "
           "both\n    results side by side.",
           input_mode='"linear", or "skip" for a first layer that adds its input to each gate '
           "without a\n    kernel.",
           time_major="whether time is the first axis rather than the second.",
           dtype="dtype of the weights; None means the default float."),
    Family("LSTMCell GRUCell RNNCell", key=_KEY, use_bias="whether there are biases.",
           input_mode='"linear", or "skip" for no input kernel.',
           dtype="dtype of the weights; None means the default float."),
)  # fmt: skip
