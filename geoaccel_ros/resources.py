"""Where the package's data files lie: launch files, configurations, RViz views.

They are found from where this module lies, so that code and data are always of one installation:

- a source tree (an editable install, ``colcon build --symlink-install``) has them at its root;
- an installation has them in ``<prefix>/share/geoaccel_ros``, where `colcon build` and pip put
  them, and <prefix> is a folder above the module.

Files inside the Python package (kernels, MuJoCo models) are read with `importlib.resources`.
"""

from pathlib import Path

PACKAGE = "geoaccel_ros"


def share_path(relative: str) -> Path:
    """Return the path of a data file, such as ``config/fastdds.xml``.

    Parameters
    ----------
    relative
        Path below the source tree's root, which is also its path below share/geoaccel_ros.

    Raises
    ------
    FileNotFoundError
        Where there is no such file; the message names what was looked for and where.
    """
    looked_in = _share_folders()
    for folder in looked_in:
        if (folder / relative).exists():
            return folder / relative
    where = " or ".join(map(str, looked_in)) or f"any share/{PACKAGE} above {Path(__file__).parent}"
    raise FileNotFoundError(f"{PACKAGE} has no data file '{relative}' in {where}")


def _share_folders() -> list[Path]:
    package = Path(__file__).resolve().parent
    if (package.parent / "package.xml").exists():
        return [package.parent]
    shares = [prefix / "share" / PACKAGE for prefix in package.parents]
    return [share for share in shares if share.is_dir()]
