"""Modules that are imported when they are first asked for."""

import importlib


def module(package, name):
    """package.name. hasattr, inspect and pydoc understand AttributeError alone; an import statement raises what is missing itself."""
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as missing:
        raise AttributeError(f"{package}.{name} needs {missing.name}, which is not installed") from missing
    except ImportError as refused:
        raise AttributeError(f"{package}.{name}: {refused}") from refused
