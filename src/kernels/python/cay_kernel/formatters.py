"""MIME types of results that are data: a DataFrame's columns, a figure's chart, lists and dicts as JSON.

pandas and matplotlib are looked at only when the user's code has loaded them: nothing that is displayed can be
theirs otherwise, and loading them takes a second."""

import json
import sys

from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets.traitlets import ObjectName, Unicode


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, obj):
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(obj, pandas.DataFrame):
            return super().__call__(obj)
        return {name: [v.isoformat() if isinstance(v, pandas.Timestamp) else v for v in values]
                for name, values in obj.to_dict(orient="list").items()}


class ChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict, str)

    def __call__(self, obj):
        figure = sys.modules.get("matplotlib.figure")
        if figure is None or not isinstance(obj, figure.Figure):
            return super().__call__(obj)
        from .charts import chart_of_figure

        try:
            return chart_of_figure(obj) or {}
        except Exception:  # a figure that cannot be read is still an image
            return {}


def plain(value):
    """A value as JSON has it: numpy's scalars and arrays by their own methods, keys as text. TypeError: it has none."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else key_text(key): plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and value not in (float("inf"), float("-inf")) else None
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def key_text(key):
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    if hasattr(key, "isoformat"):
        return key.isoformat()
    raise TypeError(type(key).__name__)


class ValueFormatter(JSONFormatter):
    def __call__(self, obj):
        if isinstance(obj, (list, dict)):
            try:
                return plain(obj), {"expanded": True}
            except (TypeError, RecursionError):
                pass
        return super().__call__(obj)


def register(shell):
    formatters = shell.display_formatter.formatters
    for kind, name in ((DataFormatter, "e2b/data"), (ChartFormatter, "e2b/chart"), (ValueFormatter, "application/json")):
        formatters[name] = kind(parent=shell.display_formatter)
