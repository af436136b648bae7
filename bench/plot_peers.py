#!/usr/bin/env python3
"""A bar chart of what bench/peers.py or bench/peers_backward.py measured.

    python3 bench/plot_peers.py peers.json docs/images/h200_forward.svg
    python3 bench/plot_peers.py peers_backward.json docs/images/h200_backward.svg

Rows of 32768 tokens and a hidden size of 2048 at head_dim 64 and 128; a bar for fa4 and each peer that every row of a panel
has.
"""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, PANEL_HEIGHT, LEFT, TOP, BASE = 860, 250, 60, 64, 36
COLOURS = {"fa4": "#2f6f4f", "cudnn": "#b8c4bd", "fa3": "#d9b26f", "original": "#8aa4c8"}
NAMES = {"fa4": "fa4", "cudnn": "cuDNN", "fa3": "FlashAttention-3", "original": "flash-attn-4"}


def text(x, y, content, size=12, anchor="middle", colour="#333", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{escape(content)}</text>')


def names_of(rows):
    return [name for name in COLOURS if all(name in row["tflops"] for row in rows)]


def panel(rows, title, top, highest):
    height, shown = PANEL_HEIGHT - TOP - BASE, names_of(rows)
    parts = [text(LEFT, top + 40, title, 14, "start", weight="bold")]
    for tick in range(0, int(highest) + 1, 200):
        y = top + TOP + height * (1 - tick / highest)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>')
        parts.append(text(LEFT - 8, y + 4, str(tick), 11, "end", "#777"))
    slot = (WIDTH - LEFT - 10) / len(rows)
    for i, row in enumerate(rows):
        for j, name in enumerate(shown):
            value, share = row["tflops"][name], 0.72 / len(shown)
            bar, x = slot * (share - 0.02), LEFT + slot * i + slot * (0.14 + share * j)
            y = top + TOP + height * (1 - value / highest)
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar:.1f}" '
                         f'height="{top + TOP + height - y:.1f}" fill="{COLOURS[name]}" rx="2"/>')
            parts.append(text(x + bar / 2, y - 4, f"{value:.0f}", 10))
        parts.append(text(LEFT + slot * (i + 0.5), top + TOP + height + 18, str(length(row)), 11))
    return parts


def length(row):
    """0: of different queries and keys, packed, or with a window."""
    return row["seqlen_q"] if row["seqlen_q"] == row["seqlen_k"] and not row["lengths"] and row["window"] < 0 else 0


def main():
    with open(sys.argv[1]) as file:
        data = json.load(file)
    table = [r for r in data["rows"] if r["batch"] * length(r) == 32768 and
             r["heads_q"] * r["head_dim"] == 2048 and r["head_dim"] in (64, 128)]
    panels = [(f"head_dim {d}, {'causal' if causal else 'no mask'}, by sequence length",
               sorted((r for r in table if r["head_dim"] == d and r["causal"] == causal), key=length))
              for d in (128, 64) for causal in (False, True)]
    shown = [name for name in COLOURS if any(name in names_of(rows) for _, rows in panels)]
    highest = 1.1 * max(r["tflops"][name] for _, rows in panels for r in rows for name in names_of(rows))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
             f'height="{30 + PANEL_HEIGHT * len(panels)}" font-family="sans-serif">',
             '<rect width="100%" height="100%" fill="white"/>',
             text(LEFT, 24, f"Attention {data['direction']}, bf16, TFLOP/s on one {data['gpu']}", 16, "start",
                  weight="bold")]
    x = WIDTH - 10 - sum(40 + 7 * len(NAMES[name]) for name in shown)
    for name in shown:
        parts.append(f'<rect x="{x}" y="39" width="12" height="12" fill="{COLOURS[name]}" rx="2"/>')
        parts.append(text(x + 18, 50, NAMES[name], 12, "start"))
        x += 40 + 7 * len(NAMES[name])
    for i, (title, rows) in enumerate(panels):
        parts += panel(rows, title, 10 + PANEL_HEIGHT * i, highest)
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    main()
