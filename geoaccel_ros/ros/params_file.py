"""Checks of parameter files before ROS reads them.

rcl answers a missing or malformed file with a traceback, and ignores a file that has no section
for the node; both are users' mistakes that deserve one line.
"""

import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from geoaccel_ros.config import ConfigurationError

_SECTION = "ros__parameters"


def check_parameter_files(arguments: list[str], node_name: str) -> None:
    """Check every ``--params-file`` in ``arguments`` against the node that will read it.

    Parameters
    ----------
    arguments : list of str
        The command line, with ``--ros-args``; remapping of name and namespace is honoured.
    node_name : str
        The node's own name, before remapping.

    Raises
    ------
    ConfigurationError
        If a file is missing, is no YAML mapping, has no section for the node, or holds a list that
        ROS cannot represent.
    """
    paths, full_name = _parse(arguments, node_name)
    for path in paths:
        sections = dict(_sections(read_mapping(path), ""))
        matching = [name for name in sections if _matches(name, full_name)]
        if not matching:
            found = ", ".join(sections) or f"none with the key '{_SECTION}'"
            raise ConfigurationError(
                f"parameter file '{path}' has no section for node '{full_name}' (sections: {found})"
            )
        for name in matching:
            _check_lists(path, sections[name])


def read_parameters(path: Path, full_name: str) -> dict[str, Any]:
    """Return what a parameter file gives to the node ``full_name``; the later section wins.

    Raises
    ------
    ConfigurationError
        If the file is missing or no YAML mapping.
    """
    parameters = {}
    for name, section in _sections(read_mapping(path), ""):
        if _matches(name, full_name):
            parameters.update(section)
    return parameters


def sections_of(path: Path, node_name: str) -> list[str]:
    """Return the sections, full names, of nodes so called in whatever namespace.

    Names with wildcards are none of them.

    Raises
    ------
    ConfigurationError
        If the file is missing or no YAML mapping.
    """
    names = dict(_sections(read_mapping(path), ""))
    return [name for name in names if name.endswith(node_name) and "*" not in name]


def _parse(arguments: list[str], node_name: str) -> tuple[list[Path], str]:
    paths, name, namespace = [], node_name, "/"
    ros_arguments = False
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument in ("--ros-args", "--"):
            ros_arguments = argument == "--ros-args"
        elif ros_arguments and argument == "--params-file" and following:
            paths.append(Path(following))
        elif ros_arguments and argument in ("-r", "--remap") and ":=" in following:
            source, target = following.split(":=", 1)
            if source.rpartition(":")[2] in ("__node", "__name"):
                name = target
            elif source.rpartition(":")[2] == "__ns":
                namespace = target
    return paths, f"{namespace.rstrip('/')}/{name}"


def read_mapping(path: Path) -> dict[str, Any]:
    """Return a YAML file's mapping.

    Raises
    ------
    ConfigurationError
        If the file is missing, cannot be read, or is no YAML mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"parameter file '{path}' does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"parameter file '{path}' cannot be read: {error}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"parameter file '{path}' is not valid YAML: {reason}") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"parameter file '{path}' holds no mapping of names to values")
    return content


def _sections(mapping: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the full name and the parameters of each node that a file speaks of."""
    for key, value in mapping.items():
        if key == _SECTION:
            yield prefix or "/", value if isinstance(value, dict) else {}
        elif isinstance(value, dict):
            yield from _sections(value, f"{prefix}/{str(key).strip('/')}")


def _matches(pattern: str, full_name: str) -> bool:
    # In rcl `**` stands for any number of name tokens, none included, and `*` for one of them;
    # fnmatch's `*` crosses slashes, so one-token wildcards need the same number of tokens.
    if "**" in pattern:
        return fnmatch.fnmatchcase(full_name, pattern.replace("/**", "*"))
    same_depth = pattern.count("/") == full_name.count("/")
    return same_depth and fnmatch.fnmatchcase(full_name, pattern)


def _check_lists(path: Path, parameters: dict[str, Any], prefix: str = "") -> None:
    for key, value in parameters.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            _check_lists(path, value, f"{name}.")
        elif isinstance(value, list):
            kinds = {type(item) for item in value}
            if list in kinds or dict in kinds:
                raise ConfigurationError(
                    f"parameter '{name}' in '{path}' is a nested list: ROS parameters are flat, "
                    "write the items in one list"
                )
            if {int, float} <= kinds:
                raise ConfigurationError(
                    f"parameter '{name}' in '{path}' mixes integers and decimals, which ROS "
                    "refuses in a list: write 2.0 for 2"
                )
