#!/usr/bin/env python3
"""Three charts by sequence length of what bench/python_gallery.py measured: error, speed, memory.

    python3 bench/plot_gallery.py gallery_cpu.json docs/images/python_cpu.svg
"""
import json
import math
import sys

from plot_peers import text

WIDTH, HEIGHT, PANEL, LEFT, TOP, BASE = 990, 350, 330, 64, 86, 44
COLOURS = {"fa4cpp": "#2f6f4f", "SDPA": "#d9822f", "plain": "#8aa4c8"}
NAMES = {"fa4cpp": "fa4cpp", "SDPA": "F.scaled_dot_product_attention", "plain": "plain attention"}


def shown(value):
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= limit:
            return f"{value / limit:g} {letter}"
    return f"{value:g}" if value >= 0.01 or value == 0 else f"{value:.0e}"


def ticks(low, high, logarithmic):
    if logarithmic:
        return [10.0 ** power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    step = 10 ** math.floor(math.log10(high))
    step = next(step * factor for factor in (0.1, 0.2, 0.5, 1, 2) if high / (step * factor) <= 6)
    return [step * i for i in range(math.ceil(high / step) + 1)]


def panel(rows, field, title, left, logarithmic):
    """Lines of one figure over the lengths, which lie at equal distances: each is twice the last."""
    values = [way[field] for row in rows for way in row["ways"].values() if way.get(field)]
    marks = ticks(min(values), max(values), logarithmic)
    scale = math.log10 if logarithmic else float
    low, high = scale(marks[0]), scale(marks[-1])
    width, height = PANEL - LEFT - 24, HEIGHT - TOP - BASE

    def at(index, value):
        x = left + LEFT + width * (index / max(1, len(rows) - 1))
        return x, TOP + height * (1 - (scale(value) - low) / (high - low))

    parts = [text(left + LEFT, TOP - 14, title, 13, "start", weight="bold")]
    for mark in marks:
        y = at(0, mark)[1]
        parts.append(f'<line x1="{left + LEFT}" x2="{left + LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>')
        parts.append(text(left + LEFT - 6, y + 4, shown(mark), 11, "end", "#777"))
    for index, row in enumerate(rows):
        parts.append(text(at(index, marks[-1])[0], HEIGHT - BASE + 18, str(row["length"]), 11))
    for name, colour in COLOURS.items():
        points = [at(index, row["ways"][name][field]) for index, row in enumerate(rows) if row["ways"].get(name, {}).get(field)]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return parts


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    rows = data["rows"]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="Helvetica, Arial, sans-serif"><rect width="100%" height="100%" fill="white"/>',
             text(12, 22, f"{data['device']}, torch {data['torch']}: {data['batch']} x length x {data['heads']} x {data['dim']}, bf16, causal", 12,
                  "start")]
    x = 12
    for name, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{colour}"/>')
        parts.append(text(x + 17, 42, NAMES[name], 12, "start"))
        x += 60 + 7 * len(NAMES[name])
    parts += panel(rows, "error", "largest relative error against float64", 0, True)
    parts += panel(rows, "both", "forward and backward, FLOP/s", PANEL, False)
    parts += panel(rows, "bytes", "bytes held at most", 2 * PANEL, True)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join([*parts, "</svg>\n"]))


if __name__ == "__main__":
    main()
