"""How the cost of a Pod grows with the cluster: `python bench/scaling.py [--nodes 50 200 ...] [--pods 1000 ...]
[--store sqlite] [--plot FILE]`.

Runs `bench/loops.py` for each number of nodes (with `--pods-each` Pods) and for each number of Pods (with
`--nodes-each` nodes), each in a process of its own, and prints the CPU time of a Pod until it is Running and until
the cluster is quiescent, with the exponent of the growth: 0 means that a Pod costs the same in every cluster, 1 that
its cost is proportional to the size. Leases are not renewed meanwhile: they are written whatever the Pods do. `--plot`
writes both curves as an SVG file.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LOOPS = Path(__file__).with_name("loops.py")
WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 34, 44
RUNNING, QUIET = "#3b4cc0", "#1b7a4b"


class Point(NamedTuple):
    size: int
    """The number of nodes or of Pods."""
    running: float
    """Milliseconds of CPU time per Pod until all Pods are Running."""
    quiet: float
    """Milliseconds of CPU time per Pod until the cluster is quiescent."""
    rate: float
    """Pods per second until all are Running."""
    resident: float
    """Maximum of the resident memory, in MiB."""


def measure(size: int, nodes: int, pods: int, store: str) -> Point:
    command = [
        sys.executable,
        str(LOOPS),
        "--nodes",
        str(nodes),
        "--pods",
        str(pods),
        "--store",
        store,
        "--no-heartbeats",
    ]
    # A Deployment of many thousand Pods is not what people have.
    command += ["--sets", str(max(1, pods // 1000))]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cost = r"+[\d.]+ s +(\d+) Pods/s +(\d+) us"
    rate, running = _found(f"until all Running: {cost}", text)
    quiet = _found(f"until quiescent: {cost}", text)[1]
    resident = _found(r"resident at most: +(\d+) MiB", text)[0]
    point = Point(size, running / 1000, quiet / 1000, rate, resident)
    print(
        f"{nodes:6} nodes {pods:7} Pods: {point.running:6.2f} ms until Running, {point.quiet:6.2f} ms until quiescent, "
        f"{point.rate:5.0f} Pods/s, {point.resident:6.0f} MiB",
        flush=True,
    )
    return point


def _found(pattern: str, text: str) -> list[float]:
    match = re.search(pattern, text)
    if match is None:
        sys.exit(f"loops.py did not print {pattern!r}:\n{text}")
    return [float(value) for value in match.groups()]


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms that fits best."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y)) / sum((a - middle_x) ** 2 for a in x)


def panel(offset: int, title: str, axis: str, points: Sequence[Point], most: float) -> str:
    """Return a plot of milliseconds per Pod against a size on a logarithmic scale."""
    low, high = math.log10(points[0].size), math.log10(points[-1].size)

    def x(size: int) -> float:
        return LEFT + (math.log10(size) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM)

    parts = [f'<g transform="translate({offset} 0)">', f'<text x="{LEFT}" y="18" class="title">{title}</text>']
    step = next(step for step in (0.5, 1, 2, 5, 10, 20) if most / step <= 8)
    for number in range(int(most / step) + 1):
        at = y(number * step)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number * step:g}</text>')
    for point in points:
        parts.append(
            f'<text x="{x(point.size):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{point.size:,}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle" class="axis">{axis}</text>'
    )
    for colour, values in ((RUNNING, [p.running for p in points]), (QUIET, [p.quiet for p in points])):
        places = [(x(point.size), y(value)) for point, value in zip(points, values)]
        parts.append(f'<path fill="none" stroke="{colour}" stroke-width="2" d="M{_path(places)}"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
    return "\n".join([*parts, "</g>"])


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in places)


def plot(by_nodes: Sequence[Point], by_pods: Sequence[Point], options: argparse.Namespace) -> str:
    most = math.ceil(max(point.quiet for point in [*by_nodes, *by_pods]) * 1.1)
    style = "text{font:11px sans-serif;fill:#444}.title{font-weight:bold;fill:#222}.grid{stroke:#ddd}"
    legend = [
        f'<circle cx="{x}" cy="14" r="4" fill="{colour}"/><text x="{x + 8}" y="18">{text}</text>'
        for x, colour, text in ((WIDTH - 190, RUNNING, "until Running"), (WIDTH - 92, QUIET, "until quiescent"))
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" role="img" '
            f'aria-label="CPU time of a Pod by the number of nodes and of Pods">',
            f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>',
            panel(0, "CPU ms per Pod", f"nodes, with {options.pods_each:,} Pods", by_nodes, most),
            panel(WIDTH, "CPU ms per Pod", f"Pods, with {options.nodes_each:,} nodes", by_pods, most),
            *legend,
            "</svg>\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[50, 150, 500, 1500, 5000])
    parser.add_argument("--pods", type=int, nargs="*", default=[1000, 3000, 10_000, 20_000, 50_000])
    parser.add_argument("--pods-each", type=int, default=1000, help="Pods of the clusters whose nodes vary")
    parser.add_argument("--nodes-each", type=int, default=500, help="nodes of the clusters whose Pods vary")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    options = parser.parse_args()
    by_nodes = [measure(nodes, nodes, options.pods_each, options.store) for nodes in sorted(options.nodes)]
    by_pods = [measure(pods, options.nodes_each, pods, options.store) for pods in sorted(options.pods)]
    for what, points in (("nodes", by_nodes), ("Pods", by_pods)):
        if len(points) > 1:
            sizes = [point.size for point in points]
            running = exponent(sizes, [point.running for point in points])
            quiet = exponent(sizes, [point.quiet for point in points])
            print(f"growth with {what}: exponent {running:.2f} until Running, {quiet:.2f} until quiescent")
    if options.plot:
        options.plot.write_text(plot(by_nodes, by_pods, options))


if __name__ == "__main__":
    main()
