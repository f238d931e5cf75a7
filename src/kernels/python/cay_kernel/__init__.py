"""The parts of cay's Python kernels beyond ipykernel: results as data (formatters), charts (charts), what is sent (packing)."""


def load_ipython_extension(shell):
    from . import formatters, images, packing

    formatters.register(shell)
    packing.register(shell)
    images.register()
