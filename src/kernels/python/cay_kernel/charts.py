"""A matplotlib figure as data: what kind of chart it is, its labels, scales and values.

The kind follows from the kinds of artists on the axes. All keys of a kind are always there, None where the figure has
nothing for them: clients read them so. Source: the models of e2b-code-interpreter 2.11 (charts.py)."""

import re

from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.dates import DateConverter, num2date
from matplotlib.dates import _SwitchableDateConverter as SwitchableDateConverter
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text

UNIT = re.compile(r"\s\((.*)\)|\[(.*)\]")


def chart_of_figure(figure):
    """A chart as a dict, or None for a figure with no data in it."""
    charts = [chart_of_axes(axes) for axes in figure.axes if axes.has_data()]
    if not charts:
        return None
    if len(charts) == 1:
        return charts[0]
    return {"type": "superchart", "title": figure.get_suptitle() or None, "elements": charts}


def chart_of_axes(axes):
    artists = [a for a in axes.get_children() if not isinstance(a, Text) and a is not axes.patch and is_data(axes, a)]
    kind = kind_of(artists)
    return {"type": kind, "title": axes.get_title() or None, **READERS[kind](axes, artists)}


def is_data(axes, artist):
    return artist in axes.lines or artist in axes.collections or artist in axes.patches


def is_grid_line(line):
    """A straight line along one of the axes, as axhline and axvline draw them."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def kind_of(artists):
    lines = [a for a in artists if isinstance(a, Line2D)]
    if artists and len(lines) == len(artists):
        return "line"
    if lines and any(isinstance(a, PathPatch) for a in artists) and \
            all(isinstance(a, (Line2D, PathPatch)) for a in artists):
        return "box_and_whisker"
    rest = [a for a in artists if not (isinstance(a, Line2D) and is_grid_line(a))]
    for kind, name in ((PathCollection, "scatter"), (Wedge, "pie"), (Rectangle, "bar")):
        if rest and all(isinstance(a, kind) for a in rest):
            return name
    return "unknown"


# -- what several kinds have ------------------------------------------------------------------------------------------

def unit_of(label):
    found = UNIT.search(label or "")
    return (found.group(1) or found.group(2)) if found else None


def labels_of(axes):
    x, y = axes.get_xlabel() or None, axes.get_ylabel() or None
    return {"x_label": x, "y_label": y, "x_unit": unit_of(x), "y_unit": unit_of(y)}


def is_dates(axis):
    converter = getattr(axis, "get_converter", lambda: axis.converter)()
    return isinstance(converter, (DateConverter, SwitchableDateConverter))


def scale_of(axis, ticks, texts):
    if is_dates(axis):
        return "datetime"
    if axis.get_scale() != "linear":
        return axis.get_scale()
    numbered = list(ticks) == list(range(len(ticks)))
    return "categorical" if numbered and texts and texts != [number_text(t) for t in ticks] else "linear"


def number_text(value):
    return f"{value:g}"


def axis_of(axis, name):
    ticks = [float(t) for t in axis.get_ticklocs()]
    texts = [t.get_text() for t in axis.get_ticklabels()]
    values = [num2date(t).isoformat() for t in ticks] if is_dates(axis) else ticks
    return {f"{name}_ticks": values, f"{name}_tick_labels": texts, f"{name}_scale": scale_of(axis, ticks, texts)}


def coordinate(axis, value):
    if is_dates(axis) and isinstance(value, (int, float)):
        return num2date(value).isoformat()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    item = value.item() if hasattr(value, "item") else value
    return item.isoformat() if hasattr(item, "isoformat") else item


def points_of(axes, xs, ys):
    return [[coordinate(axes.xaxis, x), coordinate(axes.yaxis, y)] for x, y in zip(xs, ys)]


def named(label, number, name):
    return label if label and not label.startswith("_") else f"{name} {number}"


# -- the kinds --------------------------------------------------------------------------------------------------------

def points(axes, elements):
    return {**labels_of(axes), **axis_of(axes.xaxis, "x"), **axis_of(axes.yaxis, "y"), "elements": elements}


def read_lines(axes, artists):
    lines = [a for a in artists if not is_grid_line(a)] or artists
    return points(axes, [{"label": named(a.get_label(), i, "Line"),
                          "points": points_of(axes, a.get_xdata(orig=is_dates(axes.xaxis)),
                                              a.get_ydata(orig=is_dates(axes.yaxis)))}
                         for i, a in enumerate(lines)])


def read_scatter(axes, artists):
    clouds = [a for a in artists if isinstance(a, PathCollection)]
    return points(axes, [{"label": named(a.get_label(), i, "Line"),
                          "points": [[float(x), float(y)] if not is_dates(axes.xaxis)
                                     else [coordinate(axes.xaxis, float(x)), float(y)] for x, y in a.get_offsets()]}
                         for i, a in enumerate(clouds)])


def read_bars(axes, artists):
    elements, lying = [], False
    for number, group in enumerate(c for c in axes.containers if isinstance(c, BarContainer)):
        lying = group.orientation == "horizontal"
        axis = axes.yaxis if lying else axes.xaxis
        texts = {float(at): text.get_text() for at, text in zip(axis.get_ticklocs(), axis.get_ticklabels())}
        for bar in group:
            middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if lying else bar.get_height()
            elements.append({"label": texts.get(float(middle)) or coordinate(axis, float(middle)),
                             "group": named(group.get_label(), number, "Group"),
                             "value": coordinate(axes.yaxis, value)})
    labels = labels_of(axes)
    if lying:
        labels = {"x_label": labels["y_label"], "y_label": labels["x_label"],
                  "x_unit": labels["y_unit"], "y_unit": labels["x_unit"]}
    for element in elements:
        element["label"] = str(element["label"])
    return {**labels, "elements": elements}


def read_pie(axes, artists):
    wedges = [a for a in artists if isinstance(a, Wedge)]
    return {"elements": [{"label": w.get_label(), "angle": round(abs(float(w.theta2) - float(w.theta1)), 4),
                          "radius": float(w.r)} for w in wedges]}


def read_boxes(axes, artists):
    lines = [a for a in artists if isinstance(a, Line2D)]
    texts = list(zip(axes.get_xticks(), axes.get_xticklabels()))
    return {**labels_of(axes),
            "elements": [box_of(a, lines, texts) for a in artists if isinstance(a, PathPatch)]}


def box_of(box, lines, texts):
    """A box reaches from the first quartile to the third; its whiskers stand on it, its median lies in it."""
    vertices = box.get_path().vertices
    left, right = float(vertices[:, 0].min()), float(vertices[:, 0].max())
    low, high = float(vertices[:, 1].min()), float(vertices[:, 1].max())
    middle, median, bottom, top, outliers = (left + right) / 2, None, low, high, []
    for line in lines:
        xs, ys = [[float(v) for v in values] for values in (line.get_xdata(), line.get_ydata())]
        if not xs or abs(sum(xs) / len(xs) - middle) > (right - left) / 2:
            continue
        if line.get_linestyle() in ("None", "none", "", " "):
            outliers.extend(ys)
        elif len(xs) == 2 and xs[0] == xs[1]:
            bottom, top = min(bottom, *ys), max(top, *ys)
        elif len(xs) == 2 and low <= ys[0] <= high and abs(xs[1] - xs[0]) > 0.9 * (right - left):
            median = ys[0]
    label = min(texts, key=lambda t: abs(t[0] - middle), default=(0, None))[1]
    return {"label": label.get_text() if label is not None else "", "min": bottom, "first_quartile": low,
            "median": low if median is None else median, "third_quartile": high, "max": top, "outliers": outliers}


READERS = {"line": read_lines, "scatter": read_scatter, "bar": read_bars, "pie": read_pie,
           "box_and_whisker": read_boxes, "unknown": lambda axes, artists: {"elements": []}}
