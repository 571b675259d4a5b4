"""Packages that only an extra of docemb installs."""

from importlib.util import find_spec

from docemb_lib.base.errors import InputError


def needed(extra: str, *packages: str) -> None:
    """Raise InputError that names `extra` where one of its packages is not installed."""
    for package in packages:
        if find_spec(package) is None:
            mend = f'run `pip install "docemb[{extra}]"`'
            raise InputError(f"the package {package} is not installed; {mend}")
