"""Versions of installed packages."""

import importlib.metadata
from collections.abc import Iterable


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages, named as pip names them, that are installed."""
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
