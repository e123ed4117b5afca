"""Teach an LSTM to write documentation, one character at a time.

The text is the docstrings of Python's own standard library, read from its source files, so nothing
is downloaded. The loop over time is one `lax.scan`, compiled together with its gradient.

    python examples/char_lstm.py --help
"""

from __future__ import annotations

import argparse
import ast
import sys
import sysconfig
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, optim, random, rnn


def docstrings(limit: int) -> str:
    """Docstrings of the standard library's top-level modules and packages, `limit` characters."""
    pieces, size = [], 0
    folder = Path(sysconfig.get_paths()["stdlib"])
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted([*folder.glob("[a-z]*.py"), *folder.glob("[a-z]*/__init__.py")]):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            text = ast.get_docstring(node) if isinstance(node, documented) else None
            if text:
                pieces.append(text + "\n\n")
                size += len(pieces[-1])
        if size > limit:
            break
    if not pieces:
        sys.exit(f"There are no source files of the standard library in {folder}.")
    return "".join(pieces)[:limit]


class Corpus(NamedTuple):
    """A text as numbers, and the characters they stand for."""

    ids: np.ndarray
    alphabet: str

    def encode(self, text: str) -> np.ndarray:
        """Numbers of the characters; ValueError for one that the text does not have."""
        unknown = sorted(set(text) - set(self.alphabet))
        if unknown:
            raise ValueError(f"the text the network learned from has no {''.join(unknown)!r}")
        return np.array([self.alphabet.index(c) for c in text], np.int32)

    def decode(self, ids: Any) -> str:
        """The text of numbers."""
        return "".join(self.alphabet[i] for i in np.asarray(ids))


def make_corpus(text: str) -> Corpus:
    """Number the characters; all that is not printable ASCII is left out."""
    points = np.frombuffer(text.encode("ascii", "ignore"), np.uint8)
    points = points[((points >= 32) & (points < 127)) | (points == 10)]
    alphabet, ids = np.unique(points, return_inverse=True)
    return Corpus(ids.astype(np.int32), bytes(alphabet).decode())


class CharLSTM(nn.Module):
    """Predicts the next character from all before it.

    `model(ids, state)` takes characters `(time, batch)` and returns logits `(time, batch,
    alphabet)` and the state after them.
    """

    embedding: nn.Embedding
    lstm: rnn.LSTM
    head: nn.Dense

    def __init__(self, characters: int, hidden: int, layers: int, *, key: Any) -> None:
        k1, k2, k3 = random.split(key, 3)
        self.embedding = nn.Embedding(characters, hidden // 4, key=k1)
        self.lstm = rnn.LSTM(hidden // 4, hidden, layers=layers, key=k2)
        self.head = nn.Dense(hidden, characters, key=k3)

    def __call__(self, ids: Any, state: Any = None) -> Any:
        y, state = self.lstm(self.embedding(ids), state)
        return self.head(y), state


def make_train_step(optimizer: optim.GradientTransformation) -> Any:
    """`train_step(model, opt_state, state, ids) -> (model, opt_state, state, loss)`.

    `ids` are `(time + 1, batch)`. The network goes on from `state`, where the piece of text before
    ended, but gradients do not reach back there.
    """

    @partial(amdjax.jit, donate_argnums=(0, 1, 2))
    def train_step(model: Any, opt_state: Any, state: Any, ids: Any) -> Any:
        def loss_fn(model: Any) -> Any:
            logits, end = model(ids[:-1], state)
            return nn.softmax_cross_entropy(logits, ids[1:]), end

        (loss, state_after), grads = amdjax.value_and_grad(loss_fn, has_aux=True)(model)
        updates, opt_state = optimizer.update(grads, opt_state, model)
        return optim.apply_updates(model, updates), opt_state, state_after, loss

    return train_step


@partial(amdjax.jit, static_argnames="length")
def generate(model: CharLSTM, key: Any, prompt: Any, temperature: Any, length: int) -> Any:
    """Characters that continue a prompt, drawn one after the other in one compiled loop."""
    logits, state = model(prompt[:, None])

    def draw(carry: Any, key: Any) -> Any:
        state, logits = carry
        character = random.categorical(key, logits / temperature)
        logits, state = model(character[None], state)
        return (state, logits[0]), character[0]

    return lax.scan(draw, (state, logits[-1]), random.split(key, length))[1]


def sample(
    model: CharLSTM, corpus: Corpus, prompt: str, length: int, temperature: float, seed: int
) -> str:
    """A prompt and what the network makes of it."""
    # The most probable character, without chance: a temperature too small to leave any.
    temperature = max(temperature, 1e-4)
    ids = generate(model, random.key(seed), corpus.encode(prompt), temperature, length)
    return prompt + corpus.decode(ids)


def batches(ids: np.ndarray, batch: int, length: int) -> np.ndarray:
    """Consecutive pieces of `batch` streams, `(pieces, length + 1, batch)`, overlapping by one."""
    pieces = (len(ids) // batch - 1) // length
    if pieces < 1:
        raise ValueError(f"a text of {len(ids)} characters is too short for {batch} x {length}")
    streams = ids[: len(ids) // batch * batch].reshape(batch, -1).T
    return np.stack([streams[i * length : (i + 1) * length + 1] for i in range(pieces)])


def train(
    corpus: Corpus,
    *,
    seconds: float = 30.0,
    steps: int | None = None,
    hidden: int = 256,
    layers: int = 1,
    batch: int = 32,
    length: int = 64,
    seed: int = 0,
    log: Any = print,
) -> tuple[CharLSTM, list[float]]:
    """Train until time or steps are over; return the network and the loss of each step."""
    model = CharLSTM(len(corpus.alphabet), hidden, layers, key=random.key(seed))
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(3e-3))
    opt_state = optimizer.init(model)
    train_step = make_train_step(optimizer)
    zeros = jnp.zeros((batch, hidden))
    start = tuple((zeros, zeros) for _ in range(layers))
    pieces = batches(corpus.ids, batch, length)
    log(f"{nn.count_parameters(model):,} parameters, {len(corpus.alphabet)} characters, "
        f"{len(corpus.ids):,} of text")  # fmt: skip

    losses: list[float] = []
    state, began, shown = start, time.perf_counter(), time.perf_counter()
    done, since = 0, 0
    while (steps is None or done < steps) and time.perf_counter() - began < seconds:
        if done % len(pieces) == 0:
            state = amdjax.tree.map(jnp.copy, start)
        model, opt_state, state, loss = train_step(
            model, opt_state, state, pieces[done % len(pieces)]
        )
        losses.append(float(loss))
        done, since = done + 1, since + 1
        now = time.perf_counter()
        if done == 1:
            log(f"compiled in {now - began:.1f} s")
            shown, since = now, 0
        elif now - shown > 3:
            speed = since * batch * length / (now - shown)
            log(f"step {done:5}  loss {np.mean(losses[-since:]):.3f}  {speed:9,.0f} characters/s")
            shown, since = now, 0
    return model, losses


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--seconds", type=float, default=30.0, help="how long to train")
    add("--steps", type=int, help="stop after so many steps")
    add("--hidden", type=int, default=256, help="hidden features")
    add("--layers", type=int, default=1, help="LSTM layers")
    add("--batch", type=int, default=32, help="streams of text read side by side")
    add("--length", type=int, default=64, help="characters the gradient reaches back")
    add("--characters", type=int, default=1_000_000, help="characters of text to learn from")
    add("--prompt", default="Return ", help="how the sample begins")
    add("--sample", type=int, default=400, help="characters of the sample")
    add("--temperature", type=float, default=0.6, help="0: most probable, 1: as learned, or wilder")
    add("--seed", type=int, default=0, help="of parameters and sample")
    args = checked_args(parser, argv)
    if args.hidden < 4:
        parser.error(f"argument --hidden: must be at least 4, got {args.hidden}")
    return args


def checked_args(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """Arguments of which all numbers are positive, but for a seed and a temperature of 0."""
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        if isinstance(value, int | float) and value <= 0 and name not in ("seed", "temperature"):
            parser.error(f"argument --{name}: must be positive, got {value}")
    if args.temperature < 0:
        parser.error(f"argument --temperature: must not be negative, got {args.temperature}")
    if not args.prompt:
        parser.error("argument --prompt: must not be empty")
    return args


def corpus_for(args: argparse.Namespace) -> Corpus:
    """As much of the text as asked for; ends the program if that lacks characters of the prompt."""
    corpus = make_corpus(docstrings(args.characters))
    try:
        corpus.encode(args.prompt)
    except ValueError as error:
        sys.exit(f"--prompt: {error}")
    return corpus


def main(argv: list[str] | None = None) -> None:
    """Train and print a sample."""
    args = parse_args(argv)
    corpus = corpus_for(args)
    if len(corpus.ids) // args.batch <= args.length:
        sys.exit(
            f"--characters: {len(corpus.ids):,} are too few for --batch {args.batch} streams of "
            f"more than --length {args.length}"
        )
    model, losses = train(
        corpus, seconds=args.seconds, steps=args.steps, hidden=args.hidden, layers=args.layers,
        batch=args.batch, length=args.length, seed=args.seed,
    )  # fmt: skip
    last = float(np.mean(losses[-20:]))
    print(f"{len(losses)} steps, loss {last:.3f} ({last / np.log(2):.2f} bits a character)\n")
    print(sample(model, corpus, args.prompt, args.sample, args.temperature, args.seed))


if __name__ == "__main__":
    main()
