"""Pillow without a display: Image.show() and Image.save(path) make the image a result. Hooked when the user's code loads
Pillow, which costs nothing until then."""

import importlib.abc
import importlib.machinery
import sys


def patch(module):
    from IPython.display import display

    save = module.Image.save

    def save_and_display(self, fp, format=None, **params):
        if isinstance(fp, str):
            display(self)
        return save(self, fp, format, **params)

    module.Image.save = save_and_display
    module.Image.show = lambda self, *_, **__: display(self)


class Finder(importlib.abc.MetaPathFinder):
    """Lets the others find PIL.Image, and patches it after its load."""

    def find_spec(self, name, path, target=None):
        if name != "PIL.Image":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                patch(module)

            spec.loader.exec_module = exec_module
        return spec


def register():
    if "PIL.Image" in sys.modules:
        patch(sys.modules["PIL.Image"])
    else:
        sys.meta_path.insert(0, Finder())
