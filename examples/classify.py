"""Tell what is in an image, by any image classifier in an ONNX file.

    python examples/classify.py MODEL.onnx IMAGE [--labels LABELS.txt]

The image is an .npy of rows, columns and colors, a .ppm, or anything that Pillow reads if that is
installed. It is scaled so that its shorter side fits the model's input, the middle is cut out, and
its colors are normalized as those of ImageNet are, unless the model takes bytes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import image, nn, onnx

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
SIDE = 224  # where the model takes images of any size


def read_image(path: Path) -> np.ndarray:
    """Bytes of shape (rows, columns, 3)."""
    if path.suffix == ".npy":
        pixels = np.load(path, allow_pickle=False)
    elif path.suffix == ".ppm":
        pixels = read_ppm(path.read_bytes())
    else:
        try:
            from PIL import Image
        except ImportError:
            sys.exit(
                f"{path}: Pillow reads such images (pip install pillow); .npy and .ppm need none"
            )
        with Image.open(path) as opened:
            pixels = np.asarray(opened.convert("RGB"))
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    if pixels.ndim != 3 or pixels.shape[2] < 3 or not pixels.size:
        sys.exit(f"{path}: an image has rows, columns and 3 colors, got shape {pixels.shape}")
    is_float = pixels.dtype.kind == "f"
    return (pixels[..., :3] * (255 if is_float else 1)).clip(0, 255).astype(np.uint8)


def read_ppm(data: bytes) -> np.ndarray:
    """The pixels of a binary PPM file, whose header may have comments."""
    words: list[bytes] = []
    at = 0
    while len(words) < 4 and at < len(data):
        end = at
        while end < len(data) and not data[end : end + 1].isspace():
            end += 1
        if data[at : at + 1] == b"#":
            at = data.find(b"\n", at) + 1 or len(data)
            continue
        if end > at:
            words.append(data[at:end])
        at = end + 1
    if len(words) < 4 or words[0] != b"P6" or words[3] != b"255":
        sys.exit("a .ppm must be binary (P6), of 8 bits a color")
    columns, rows = int(words[1]), int(words[2])
    if len(data) - at < rows * columns * 3:
        sys.exit("the .ppm is cut off")
    return np.frombuffer(data, np.uint8, rows * columns * 3, at).reshape(rows, columns, 3)


def prepare(pixels: np.ndarray, value: Any) -> Any:
    """The image as the model's input wants it: dtype, size and order of axes."""
    if value.shape is None or len(value.shape) != 4:
        sys.exit(f"input {value}: this takes models of images, of four axes")
    is_last = value.shape[3] in (1, 3)
    sides = value.shape[1:3] if is_last else value.shape[2:]
    channels = value.shape[3] if is_last else value.shape[1]
    rows, columns = (n if isinstance(n, int) else SIDE for n in sides)
    scale = max(rows / pixels.shape[0], columns / pixels.shape[1])
    size = [max(round(n * scale), least) for n, least in zip(pixels.shape, (rows, columns))]
    x = image.resize(jnp.asarray(pixels, jnp.float32), (*size, 3), "bilinear")
    top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
    x = x[top : top + rows, left : left + columns]
    if np.dtype(value.dtype).kind == "f":
        x = (x / 255 - MEAN) / DEVIATION
    if channels == 1:
        x = x.mean(-1, keepdims=True)
    x = (x if is_last else x.transpose(2, 0, 1))[None]
    return (
        jnp.round(x).astype(value.dtype)
        if np.dtype(value.dtype).kind in "iu"
        else x.astype(value.dtype)
    )


def probabilities(scores: Any) -> np.ndarray:
    """What the model gives, as probabilities; a softmax where it is none yet."""
    x = np.asarray(scores, np.float64).reshape(-1)
    if (x >= 0).all() and abs(x.sum() - 1) < 1e-2:
        return x
    return np.asarray(nn.softmax(jnp.asarray(x)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="an image classifier, .onnx")
    parser.add_argument("image", type=Path, help=".npy, .ppm, or what Pillow reads")
    parser.add_argument("--labels", type=Path, help="names of the classes, a line each")
    parser.add_argument("--top", type=int, default=5, help="how many classes to show (default: 5)")
    options = parser.parse_args()
    for path in (options.model, options.image, options.labels):
        if path is not None and not path.exists():
            sys.exit(f"there is no file {path}")
    try:
        model = onnx.load(options.model)
    except onnx.OnnxError as error:
        sys.exit(f"{options.model}: {error}")
    print(f"{model!r} on {amdjax.devices()[0]}")
    (value, *others) = model.inputs
    if others:
        sys.exit(f"the model takes {len(model.inputs)} inputs, not one image")
    try:
        x = prepare(read_image(options.image), value)
    except (OSError, ValueError) as error:  # also Pillow's
        sys.exit(f"{options.image}: it is read as no image ({error})")
    start = time.perf_counter()
    found = probabilities(next(iter(model(**{value.name: x}).values())))
    first = time.perf_counter() - start
    start = time.perf_counter()
    np.asarray(next(iter(model(**{value.name: x}).values())))
    again = time.perf_counter() - start
    names = options.labels.read_text().splitlines() if options.labels else []
    for place in np.argsort(-found, kind="stable")[: options.top]:
        name = names[place] if place < len(names) else f"class {place}"
        print(f"{found[place]:7.2%}  {name}")
    print(f"first call, compiled: {first:.2f} s; again: {again * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
