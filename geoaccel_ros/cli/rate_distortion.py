"""geoaccel compress --sweep: what finer and coarser steps would give."""

import dataclasses
from pathlib import Path

import numpy as np

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.compression.codec import CodecConfig, CodecError


def picture_path(stream: str, folder: Path | None) -> Path:
    """Return where a sweep's picture goes: into a folder, made if need be, or beside the stream.

    Raises
    ------
    UserError
        If the folder cannot be made.
    """
    name = f"{Path(stream).stem}_rate_distortion.png"
    if folder is None:
        return Path(stream).with_name(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make folder '{folder}': {error.strerror}") from None
    return folder / name


def sweep_and_draw(points: np.ndarray, config: CodecConfig, source: str, picture: Path) -> dict:
    """Return the rows of a sweep and the path of its picture, ready for JSON.

    Parameters
    ----------
    points : ndarray, shape (N,), structured
    config : CodecConfig
        Of all but the step; steps with which the cloud cannot be encoded are left out.
    source : str
        What the cloud is called.
    picture : Path

    Raises
    ------
    UserError
        If the cloud can be encoded with none of the steps, or the picture cannot be written.
    """
    # SciPy and matplotlib take longer to import than a cloud to compress.
    from geoaccel_ros.benchmark.compression_pictures import draw_distortion
    from geoaccel_ros.benchmark.errors import BenchmarkError
    from geoaccel_ros.compression.rate_distortion import STEPS, sweep

    rows, refusal = [], None
    for step in STEPS:
        try:
            rows += map(dataclasses.asdict, sweep(points, config, [step]))
        except CodecError as error:
            refusal = error
    if not rows:
        raise UserError(f"'{source}': {refusal}")
    labelled = [{"contender": f"geoaccel, {config.mode}", **row} for row in rows]
    try:
        draw_distortion(picture, labelled, Path(source).name)
    except BenchmarkError as error:
        raise UserError(str(error)) from None
    return {"sweep": rows, "picture": str(picture)}
