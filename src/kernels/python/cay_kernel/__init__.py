"""The parts of cay's Python kernels beyond ipykernel: results as data (formatters), charts (charts)."""


def load_ipython_extension(shell):
    from . import formatters, images

    formatters.register(shell)
    images.register()
