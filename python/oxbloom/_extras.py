"""Checks for packages that only a part of oxbloom needs. `pip install "oxbloom[EXTRA]"` installs them."""

from importlib import import_module


def require(extra: str, *packages: str) -> None:
    """Raises ImportError, which says what to install, if a package of an extra is not installed."""
    for package in packages:
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise ImportError(
                f'this needs the package {package}: pip install "oxbloom[{extra}]"', name=package
            ) from None
