"""The picture of a bench for the README: SVG by hand, legible on light and dark pages alike."""

from xml.sax.saxutils import escape

WIDTH, MARGIN = 880, 28
LIGHT = {"page": "#ffffff", "line": "#d0d7de", "text": "#1f2328", "dim": "#59636e", "ours": "#0969da",
         "other": "#afb8c1", "good": "#1a7f37", "bad": "#bc4c00"}
DARK = {"page": "#0d1117", "line": "#3d444d", "text": "#f0f6fc", "dim": "#9198a1", "ours": "#4493f8",
        "other": "#656c76", "good": "#3fb950", "bad": "#db6d28"}
PEERS = ("bwrap", "crun", "runc", "podman", "runsc")
BAR, GAP, NAME = 20, 8, 132

# id of the row, what the tile says above the figure
TILES = (("create_ready", "create to ready, against the bare kernel calls"), ("exec_true", "run of true, against fork + exec"),
         ("sdk_first_output", "JS SDK: create to first output"), ("sustained", "creates and kills a second"),
         ("memory_each", "memory of an idle sandbox"), ("idle_cpu", "processor, all idle ones together"),
         ("upload", "upload, against a bare relay"), ("download", "download, against a bare relay"))


def styles(dark):
    def rules(colours):
        fills = "".join(f".{name}{{fill:{colours[name]}}}" for name in ("text", "dim", "ours", "other", "good", "bad"))
        return fills + f".page{{fill:{colours['page']};stroke:{colours['line']}}}.tile{{fill:none;stroke:{colours['line']}}}"

    font = "text{font-family:-apple-system,'Segoe UI','Noto Sans','DejaVu Sans',sans-serif}"
    if dark:
        return font + rules(DARK)
    return font + rules(LIGHT) + f"@media (prefers-color-scheme:dark){{{rules(DARK)}}}"


def text(x, y, words, size=13, kind="text", anchor="start", weight=400):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'class="{kind}">{escape(words)}</text>')


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bars(x, y, width, rows, unit):
    """rows: name, value, class. The longest fills the width."""
    most = max(value for _, value, _ in rows)
    room = width - NAME - 80
    parts = []
    for i, (name, value, kind) in enumerate(rows):
        top = y + i * (BAR + GAP)
        long = max(2, room * value / most)
        parts.append(text(x + NAME - 10, top + 15, name, anchor="end", weight=600 if kind == "ours" else 400))
        parts.append(f'<rect x="{x + NAME}" y="{top}" width="{long:.1f}" height="{BAR}" rx="3" class="{kind}"/>')
        parts.append(text(x + NAME + long + 7, top + 15, f"{figure(value)} {unit}", kind="dim"))
    return parts, y + len(rows) * (BAR + GAP)


def tile(x, y, width, words, row):
    value = f"{figure(row['ratio'])} ×" if row["ratio"] is not None and "×" in (row["goal"] or "") \
        else f"{figure(row['ours'])} {row['unit']}"
    kind = "good" if row["reached"] else "bad"
    state = "reached" if row["reached"] else "missed"
    exact = f"{figure(row['ours'])} {row['unit']}; " if value.endswith("×") else ""
    return [f'<rect x="{x}" y="{y}" width="{width}" height="88" rx="6" class="tile"/>',
            text(x + 12, y + 21, words, 11.5, "dim"), text(x + 12, y + 52, value, 23, weight=600),
            text(x + 12, y + 75, f"{exact}goal {row['goal']}: {state}", 11.5, kind)]


def draw(data, dark=False):
    rows = {row["id"]: row for row in data["rows"] if row["ours"] is not None}
    inner, y = WIDTH - 2 * MARGIN, MARGIN + 16
    parts = [text(MARGIN, y, "Make a sandbox, run true in it, end it", 17, weight=600)]
    compared = [("cay", rows["whole"]["ours"], "ours")] if "whole" in rows else []
    compared += [(name, rows[f"peer_{name}"]["other"], "other") for name in PEERS if f"peer_{name}" in rows]
    if compared:
        more, y = bars(MARGIN, y + 20, inner, compared, "ms")
        parts += more
    alive = [row for name, row in rows.items() if name.startswith("alone_at_")]
    if alive:
        parts.append(text(MARGIN, y + 26, "A create, by how many sandboxes are alive", 17, weight=600))
        named = [(f"{int(row['id'].rsplit('_', 1)[1]):,} alive", row["ours"], "ours") for row in alive]
        more, y = bars(MARGIN, y + 44, inner, named, "ms")
        parts += more
    wide = (inner - 16) // 2
    shown = [(name, words) for name, words in TILES if name in rows and rows[name]["goal"]]
    for i, (name, words) in enumerate(shown):
        parts += tile(MARGIN + (i % 2) * (wide + 16), y + 16 + (i // 2) * 100, wide, words, rows[name])
    y += 16 + (len(shown) + 1) // 2 * 100
    machine = data["machine"]
    parts.append(text(MARGIN, y + 14, f"make bench at commit {data['commit']}, {data['date']}; Linux "
                      f"{machine['kernel']}, {machine['processors']} processors, load average {data['load']:g} when it "
                      "began", 11.5, "dim"))
    height = y + 14 + MARGIN - 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'role="img" aria-label="cay measured against floors and peers"><style>{styles(dark)}</style>'
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10" class="page"/>'
            + "".join(parts) + "</svg>\n")
