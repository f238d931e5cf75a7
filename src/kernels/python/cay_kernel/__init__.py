"""The parts of cay's Python kernels beyond ipykernel: results as data (formatters), charts (charts), what is sent (packing),
output of descriptors (descriptors)."""


def load_ipython_extension(shell):
    from . import descriptors, formatters, images, packing

    descriptors.register(shell)
    formatters.register(shell)
    packing.register(shell)
    images.register()
