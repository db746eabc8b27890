"""Results as JSON, to a file or to standard output."""

import json
import os
from pathlib import Path

from geoaccel_ros.cli.errors import UserError


def write_json(content: dict, target: str | Path) -> None:
    """Write ``content`` to a file, or to standard output when ``target`` is ``-``.

    NaN and infinity, which JSON lacks, become null.

    Raises
    ------
    UserError
        If the file cannot be written.
    """
    text = json.dumps(_finite(content), indent=2)
    if str(target) == "-":
        print(text)
        return
    try:
        Path(target).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write '{target}': {error.strerror}") from None


def check_target(target: str | Path) -> None:
    """Complain before the work, not after it, where the JSON has no place to go.

    Raises
    ------
    UserError
        If it is a folder, or the folder of the file does not exist or cannot be written.
    """
    folder = Path(target).resolve().parent
    if str(target) != "-" and Path(target).is_dir():
        raise UserError(f"cannot write '{target}': it is a folder, give a file in it")
    if str(target) != "-" and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"cannot write '{target}': '{folder}' is no folder that can be written")


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value
