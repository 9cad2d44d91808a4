"""Line charts as inline SVG that follow the page's colours, so that they read well in light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 40
MAX_POINTS = 400


def line_chart(series: Mapping[str, Points], *, x_label: str = "", y_label: str = "", title: str = "") -> Markup:
    """An SVG with one line a series (x, y); points that are not finite are left out."""
    lines = {name: _thin([p for p in points if all(map(math.isfinite, p))]) for name, points in series.items()}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return Markup('<p class="quiet">No points to draw.</p>')
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    x_range, y_range = (min(xs), max(xs)), (min(*ys, y_ticks[0]), max(*ys, y_ticks[-1]))
    out = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title or y_label)}">',
    ]
    for tick in y_ticks:
        y = _place(tick, y_range, HEIGHT - BOTTOM, TOP)
        out.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        out.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label(tick)}</text>')
    for tick in x_ticks:
        if x_range[0] <= tick <= x_range[1]:
            x = _place(tick, x_range, LEFT, WIDTH - RIGHT)
            out.append(
                f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label(tick)}</text>'
            )
    for index, (_, points) in enumerate(lines.items()):
        path = " ".join(
            f"{_place(x, x_range, LEFT, WIDTH - RIGHT):.1f},{_place(y, y_range, HEIGHT - BOTTOM, TOP):.1f}"
            for x, y in points
        )
        colour = f"s{index % 6}"
        out.append(f'<polyline class="line {colour}" points="{path}"/>')
        if len(points) < 30:
            dots = (pair.split(",") for pair in path.split())
            out += [f'<circle class="dot {colour}" cx="{x}" cy="{y}" r="2.5"/>' for x, y in dots]
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    out.append(
        f'<text class="axis" transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text></svg>"
    )
    names = "".join(
        f'<span class="key"><i class="s{index % 6}"></i>{escape(name)}</span>' for index, name in enumerate(lines)
    )
    return Markup("".join(out) + (f'<p class="keys">{names}</p>' if len(lines) > 1 else ""))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers from at or below ``low`` to at or above ``high``."""
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def label(value: float) -> str:
    """A tick's number: short, with thousands marked."""
    if value and abs(value) >= 10000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def _place(value: float, limits: tuple[float, float], start: float, end: float) -> float:
    low, high = limits
    return start + (end - start) * (0.5 if high <= low else (value - low) / (high - low))


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep at most `MAX_POINTS` points, first and last among them."""
    if len(points) <= MAX_POINTS:
        return points
    step = (len(points) - 1) / (MAX_POINTS - 1)
    return [points[round(i * step)] for i in range(MAX_POINTS)]
