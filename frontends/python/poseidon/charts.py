# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG that a page of HTML contains: lines, bars, and lanes of time. Colours are classes of the page's style."""
from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 720  # of every chart, in its own units; the page scales it
COLORS = 8   # classes c0 to c7
TEXT = 13    # height of a line of text


class Line(NamedTuple):
    label: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    label: str
    value: float
    words: str   # what is written behind the bar
    color: int = 0


class Piece(NamedTuple):
    """Of a lane of time."""

    begin: float
    end: float
    title: str
    color: int


class Lane(NamedTuple):
    label: str
    pieces: Sequence[Piece]


def number(value: float) -> str:
    return f"{value:.6g}"


def svg(height: float, body: str, label: str) -> str:
    return (f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{html.escape(label)}" '
            f'xmlns="http://www.w3.org/2000/svg">{body}</svg>')


def words(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between the two."""
    if not high > low:
        return [low]
    step = (high - low) / count
    unit: float = 10.0 ** math.floor(math.log10(step))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= step)
    first = math.ceil(low / step)
    return [step * at for at in range(first, math.floor(high / step + 1e-9) + 1)]


def lines(drawn: Sequence[Line], x_label: str, label: str, height: int = 220) -> str:
    """Of at least one line with a point."""
    points = [point for line in drawn for point in line.points]
    (x_low, x_high), (y_low, y_high) = ((min(values), max(values)) for values in zip(*points))
    left, right, top, bottom = 60, WIDTH - 24, 12, height - 40
    x_span, y_span = (x_high - x_low) or 1, (y_high - y_low) or 1

    def at(x: float, y: float) -> tuple[float, float]:
        return left + (x - x_low) / x_span * (right - left), bottom - (y - y_low) / y_span * (bottom - top)
    body = ""
    for value in ticks(y_low, y_high):
        y = at(x_low, value)[1]
        body += f'<path class="grid" d="M{left} {y:.1f}H{right}"/>' + words(left - 6, y + 4, number(value), "end")
    for value in ticks(x_low, x_high, 8):
        body += words(at(value, y_low)[0], bottom + 16, number(value), "middle")
    body += words(right, height - 6, x_label, "end")
    for color, line in enumerate(drawn):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in line.points))
        body += f'<path class="line c{color % COLORS}" d="M{path}"/>'
        if len(drawn) > 1:
            body += f'<path class="line c{color % COLORS}" d="M{left + 130 * color} {height - 10}h18"/>'
            body += words(left + 130 * color + 24, height - 6, line.label)
    return svg(height, body, label)


def bars(drawn: Sequence[Bar], label: str) -> str:
    most = max((bar.value for bar in drawn), default=0) or 1
    left, room, row = 250, WIDTH - 250 - 120, 24
    body = ""
    for at, bar in enumerate(drawn):
        y = at * row
        body += words(left - 8, y + 16, bar.label, "end")
        body += f'<rect class="c{bar.color % COLORS}" x="{left}" y="{y + 4}" width="{max(1.0, room * bar.value / most):.1f}" height="{row - 8}"/>'
        body += words(left + room * bar.value / most + 6, y + 16, bar.words)
    return svg(row * len(drawn), body, label)


def lanes(drawn: Sequence[Lane], begin: float, end: float, marks: Sequence[tuple[float, str]], label: str) -> str:
    """Times in seconds. A mark is a line through all lanes, with its words below."""
    left, right, row = 90, WIDTH - 24, 20
    bottom = row * len(drawn)
    height = bottom + 20 + (TEXT + 4) * len(marks)

    def x_of(time: float) -> float:
        return left + (min(max(time, begin), end) - begin) / ((end - begin) or 1) * (right - left)
    body = ""
    for at, lane in enumerate(drawn):
        body += words(left - 6, at * row + 14, lane.label, "end") + f'<path class="grid" d="M{left} {(at + 1) * row}H{right}"/>'
        for piece in lane.pieces:
            x, width = x_of(piece.begin), max(0.6, x_of(piece.end) - x_of(piece.begin))
            body += (f'<rect class="c{piece.color % COLORS}" x="{x:.1f}" y="{at * row + 3}" width="{width:.1f}" height="{row - 6}">'
                     f"<title>{html.escape(piece.title)}</title></rect>")
    for value in ticks(0, 1000 * (end - begin), 8):
        body += words(x_of(begin + value / 1000), bottom + 14, f"{number(value)} ms", "middle")
    for at, (time, said) in enumerate(marks):
        y = bottom + 20 + (TEXT + 4) * (at + 1) - 4
        x = x_of(time)
        near_end = x > (left + right) / 2
        body += f'<path class="mark" d="M{x:.1f} 0V{y:.1f}"/>' + words(x + (-5 if near_end else 5), y, said, "end" if near_end else "start")
    return svg(height, body, label)
