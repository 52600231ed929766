"""Pictures of a page, reduced to their layout, and compared with reference pictures.

Each pixel of a reduced picture is the mean colour of a square of the screen. Letters become grey bars, so that another
glyph or another rasterizer makes little difference, and a missing panel or another theme a large one.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from playwright.sync_api import Page

SQUARE = 8
"""The length of a side of a square, in CSS pixels."""
_STEP = 8
"""Colours are rounded to multiples of this, which makes the files small."""
_TOLERANCE = 32
"""The largest difference of a channel at which two pixels count as equal."""
_MEANS = """
async ([png, hidden, side]) => {
  const bytes = Uint8Array.from(atob(png), (one) => one.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  context.fillStyle = "#808080";
  for (const [x, y, width, height] of hidden) context.fillRect(x, y, width, height);
  const [width, height] = [Math.floor(bitmap.width / side), Math.floor(bitmap.height / side)];
  const { data } = context.getImageData(0, 0, width * side, height * side);
  const sums = new Float64Array(width * height * 3);
  for (let at = 0; at < data.length; at += 4) {
    const [x, y] = [(at / 4) % (width * side), Math.floor(at / 4 / (width * side))];
    const to = (Math.floor(y / side) * width + Math.floor(x / side)) * 3;
    for (let channel = 0; channel < 3; channel++) sums[to + channel] += data[at + channel];
  }
  // As text: playwright takes long for many numbers.
  return [height, width, btoa(Array.from(sums, (sum) => String.fromCharCode(Math.round(sum / side / side))).join(""))];
}
"""
_BOXES = """
(elements) => elements.map((each) => each.getBoundingClientRect()).map((box) => [box.x, box.y, box.width, box.height])
"""

Picture = NDArray[np.uint8]
"""Rows of pixels with three channels."""


def reduced_screenshot(page: Page, hidden: str) -> Picture:
    """Return what a page shows, without the elements of a selector."""
    # All in one step: an element that the page removes between two steps would be waited for in vain.
    areas = page.locator(hidden).evaluate_all(_BOXES)
    means = _means(page, page.screenshot(), areas, SQUARE)
    return ((means / _STEP).round() * _STEP).clip(0, 255).astype(np.uint8)


def decoded(page: Page, png: bytes) -> Picture:
    """Return the pixels of a file. The browser decodes it."""
    return _means(page, png, [], 1)


def _means(page: Page, png: bytes, hidden: list[list[float]], side: int) -> Picture:
    height, width, colours = page.evaluate(_MEANS, [base64.b64encode(png).decode(), hidden, side])
    return np.frombuffer(base64.b64decode(colours), np.uint8).reshape(height, width, 3)


def encoded(picture: Picture) -> bytes:
    """Return a picture as the content of a PNG file."""
    height, width, _ = picture.shape
    rows = b"".join(b"\0" + row.tobytes() for row in picture)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def share_of_difference(one: Picture, other: Picture) -> float:
    """Return the share of pixels that differ; 1 if the sizes differ."""
    if one.shape != other.shape:
        return 1.0
    difference: Any = np.abs(one.astype(np.int16) - other).max(axis=2) > _TOLERANCE
    return float(difference.mean())
