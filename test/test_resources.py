"""Data files are found in a source tree and in an installed one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import geoaccel_ros.resources
from geoaccel_ros.resources import share_path

ROOT = Path(__file__).resolve().parent.parent


def test_source_tree():
    assert share_path("package.xml") == ROOT / "package.xml"
    assert share_path("config") == ROOT / "config"


def test_missing_file_names_what_and_where():
    with pytest.raises(FileNotFoundError) as caught:
        share_path("config/absent.yaml")
    assert "'config/absent.yaml'" in str(caught.value)
    assert str(ROOT) in str(caught.value)


@pytest.mark.parametrize(
    "site", ["lib/python3.11/site-packages", "local/lib/python3.10/dist-packages"]
)
def test_installed_tree(tmp_path, site):
    """An installed copy finds its own share folder, whatever the working directory."""
    package = tmp_path / "prefix" / site / "geoaccel_ros"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(geoaccel_ros.resources.__file__, package)
    share = tmp_path / "prefix" / "share" / "geoaccel_ros"
    (share / "config").mkdir(parents=True)
    (share / "config" / "some.yaml").touch()

    def run(relative: str) -> subprocess.CompletedProcess:
        code = f"from geoaccel_ros.resources import share_path; print(share_path('{relative}'))"
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}"]
        return subprocess.run([*command, str(package.parent)], capture_output=True, text=True)

    assert Path(run("config/some.yaml").stdout.strip()) == share / "config" / "some.yaml"
    assert f"'config/none.yaml' in {share}" in run("config/none.yaml").stderr
