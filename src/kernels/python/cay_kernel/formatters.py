"""MIME types of results that are data: a DataFrame's columns, a figure's chart, lists and dicts as JSON.

pandas and matplotlib are looked at only when the user's code has loaded them: nothing that is displayed can be
theirs otherwise, and loading them takes a second."""

import sys

from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets.traitlets import ObjectName, Unicode

from .values import plain, shown, shown_key


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, obj):
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(obj, pandas.DataFrame):
            return super().__call__(obj)
        return data_of_frame(obj)


def data_of_frame(frame):
    """Columns by their names; Decimals and what else JSON has no value for are text. None: it cannot be read."""
    try:
        return {shown_key(name): [shown(v) for v in frame.iloc[:, at].tolist()] for at, name in enumerate(frame.columns)}
    except Exception:  # its text and HTML are there all the same
        return None


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
