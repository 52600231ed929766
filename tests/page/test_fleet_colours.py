"""The colours of the fleet: contrast with the background, and what people without red or green cones see of them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "page" / "src"
Colour = tuple[float, float, float]
Matrix = tuple[Colour, Colour, Colour]

# After Machado, Oliveira and Fernandes, 2009, at full severity, for linear light.
PROTANOPIA: Matrix = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
DEUTERANOPIA: Matrix = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
NORMAL: Matrix = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


def linear(colour: str) -> Colour:
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return (_linear(red), _linear(green), _linear(blue))


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def luminance(colour: Colour) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(linear(one)), luminance(linear(other))))
    return (high + 0.05) / (low + 0.05)


def lab(colour: Colour) -> Colour:
    """CIE Lab, in which equal distances look about equally large."""
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = luminance(colour)
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z))
    return (116 * y - 16, 500 * (x - y), 200 * (y - z))


def seen(colour: str, matrix: Matrix) -> Colour:
    light = linear(colour)
    mixed = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True)))) for row in matrix]
    return lab((mixed[0], mixed[1], mixed[2]))


def colours(selector: str) -> dict[int, str]:
    """The colours of the states in a rule of the style sheet."""
    sheet = (PAGE / "views" / "fleet" / "fleet.css").read_text()
    rule = next(body for names, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet) if names.strip().endswith(selector))
    found = {int(state): colour for state, colour in re.findall(r"--fleet-(\d): (#[0-9a-f]{6});", rule)}
    return {state: colour for state, colour in found.items() if state}


def background(dark: bool) -> str:
    sheet = (PAGE / "styles" / "tokens.css").read_text()
    rule = sheet[sheet.index('[data-theme="dark"]') :] if dark else sheet
    found = re.search(r"--surface: (#[0-9a-f]{6});", rule)
    assert found is not None
    return found[1]


SETS = [
    (False, ".fleet", 0.0),
    (True, '[data-theme="dark"] .fleet', 0.0),
    (False, "*/\n.fleet.safe", 20.0),
    (True, '[data-theme="dark"] .fleet.safe', 20.0),
]


@pytest.mark.parametrize(("dark", "selector", "distance"), SETS)
def test_colours_of_states(dark: bool, selector: str, distance: float) -> None:
    found = colours(selector)
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7]
    assert {state: colour for state, colour in found.items() if contrast(colour, background(dark)) < 3} == {}
    for matrix in (NORMAL, PROTANOPIA, DEUTERANOPIA) if distance else (NORMAL,):
        points = {state: seen(colour, matrix) for state, colour in found.items()}
        near = [
            (one, other)
            for one in points
            for other in points
            if one < other and math.dist(points[one], points[other]) < (distance or 20)
        ]
        assert near == []
