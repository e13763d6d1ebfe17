"""Packages that only a part of oxbloom needs, and that `pip install "oxbloom[extra]"` installs."""

from importlib import import_module


def require(extra: str, *packages: str) -> None:
    """Raises ImportError, and says what to install, if one of an extra's packages is not installed."""
    for package in packages:
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise ImportError(
                f'this needs the package {package}: pip install "oxbloom[{extra}]"', name=package
            ) from None
