"""The parts of cay's Python kernels beyond ipykernel: results as data (formatters), charts (charts), what is sent (packing),
output of descriptors (descriptors), and what is done where it goes on in another sandbox (generation)."""


def load_ipython_extension(shell):
    from . import descriptors, formatters, generation, images, packing

    descriptors.register(shell)
    formatters.register(shell)
    generation.register(shell)
    packing.register(shell)
    images.register()
