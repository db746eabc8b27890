"""The package as colcon installs it, and what package.xml and setup.cfg say of it."""

import ast
import configparser
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

import geoaccel_ros

ROOT = Path(__file__).resolve().parent.parent
SHARED_FOLDERS = {
    "launch": "*.launch.py",
    "config": "*",
    "rviz": "*.rviz",
    "interfaces/point_cloud_interfaces/msg": "*.msg",
}
# What is imported by another name than it is installed by.
DISTRIBUTIONS = {
    "cupy": "cupy-cuda13x",
    "cupyx": "cupy-cuda13x",
    "mujoco": "mujoco-core",
    "yaml": "pyyaml",
    "torch": "pytorch-mppi",
}


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return parser


def entry_points() -> dict[str, str]:
    lines = setup_cfg()["options.entry_points"]["console_scripts"].split("\n")
    return dict(line.split(" = ") for line in lines if line)


class Workspace:
    """The package built by colcon, used as from a shell that sourced its setup file."""

    def __init__(self, folder: Path) -> None:
        scripts = Path(sys.executable).parent
        self.path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
        self.install = folder / "install"
        self.share = self.install / "geoaccel_ros" / "share" / "geoaccel_ros"
        self.executables = self.install / "geoaccel_ros" / "lib" / "geoaccel_ros"
        colcon = shutil.which("colcon", path=self.path)
        assert colcon, "colcon is missing: it is in the extra 'dev'"
        built = subprocess.run(
            [colcon, "--log-base", folder / "log", "build", "--packages-select", "geoaccel_ros"]
            + ["--build-base", folder / "build", "--install-base", self.install],
            cwd=ROOT,
            env={**os.environ, "PATH": self.path},
            capture_output=True,
            text=True,
        )
        assert built.returncode == 0, built.stdout + built.stderr

    def start(self, *command: str, **options) -> subprocess.Popen:
        sourced = ["bash", "-c", '. "$0" && exec "$@"', str(self.install / "setup.bash")]
        environ = {**os.environ, "PATH": self.path}
        return subprocess.Popen([*sourced, *command], env=environ, text=True, **options)

    def output(self, *command: str) -> str:
        process = self.start(*command, stdout=subprocess.PIPE, cwd="/")
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        return output.strip()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


def test_executables_are_where_ros2_run_looks(workspace):
    assert {path.name for path in workspace.executables.iterdir()} == set(entry_points())
    for path in workspace.executables.iterdir():
        assert os.access(path, os.X_OK)
        # Not the interpreter that built the package: pip-only dependencies lie in an environment.
        assert path.read_text().splitlines()[0] == "#!/usr/bin/env python3"


def test_data_files_are_installed(workspace):
    installed = {
        str(path.relative_to(workspace.share))
        for folder in SHARED_FOLDERS
        for path in (workspace.share / folder).glob("*")
    }
    in_source = {
        str(path.relative_to(ROOT))
        for folder, pattern in SHARED_FOLDERS.items()
        for path in (ROOT / folder).glob(pattern)
    }
    assert installed == in_source
    assert (workspace.share / "package.xml").exists()


def test_package_data_is_installed(workspace):
    (package,) = workspace.install.glob("geoaccel_ros/lib/python3*/site-packages/geoaccel_ros")

    def files(folder: Path) -> set[str]:
        found = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)) for path in found if "__pycache__" not in path.parts}

    assert files(package) == files(ROOT / "geoaccel_ros")


def test_installed_code_finds_its_installed_data(workspace):
    code = (
        "import geoaccel_ros.resources as r; print(r.__file__); print(r.share_path('package.xml'));"
        "from ament_index_python import get_package_share_path as p; print(p('geoaccel_ros'))"
    )
    module, data, index = map(Path, workspace.output("python3", "-c", code).splitlines())
    assert workspace.install in module.parents
    assert data == workspace.share / "package.xml"
    assert index == workspace.share


def test_installed_command_runs(workspace):
    printed = workspace.output(str(workspace.executables / "geoaccel"), "--version")
    assert printed == f"geoaccel {geoaccel_ros.__version__}"


def test_installed_node_runs_and_ends_cleanly(workspace):
    node = workspace.start(
        str(workspace.executables / "lidar_odometry"),
        *("--ros-args", "--remap", "__ns:=/installed"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    deadline = threading.Timer(120, node.kill)
    deadline.start()
    try:
        printed = []
        for line in node.stdout:
            printed.append(line)
            if re.search(r"\bactive$", line.rstrip()):
                break
        node.send_signal(signal.SIGINT)
        printed += node.stdout
        assert node.wait() == 0, "".join(printed)
    finally:
        deadline.cancel()
        node.kill()


def test_entry_points_exist():
    for entry_point in entry_points().values():
        module, function = entry_point.split(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_package_xml_has_the_version():
    package = ElementTree.parse(ROOT / "package.xml")
    assert package.findtext("version") == geoaccel_ros.__version__


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in (ROOT / "geoaccel_ros").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def imported_from(files) -> dict[str, str]:
    """Map the top-level names that the files import to a file that does."""
    found = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            found.update((name.split(".")[0], str(path.relative_to(ROOT))) for name in names)
    return found


def test_every_import_is_declared():
    """ROS packages in package.xml; the rest, as pip knows it, in setup.cfg."""
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    declared = {element.text for element in package if element.tag.endswith("depend")}
    setup = setup_cfg()
    lines = setup["options"]["install_requires"].splitlines()
    lines += [line for lines in setup["options.extras_require"].values() for line in lines.split()]
    declared |= {re.match(r"[\w.-]*", line)[0].lower().replace("-", "_") for line in lines}

    files = [*(ROOT / "geoaccel_ros").rglob("*.py"), *(ROOT / "launch").glob("*.py")]
    imports = imported_from(files)
    undeclared = {
        name: path
        for name, path in imports.items()
        if name not in sys.stdlib_module_names
        and name != "geoaccel_ros"
        and DISTRIBUTIONS.get(name, name).lower().replace("-", "_") not in declared
    }
    assert undeclared == {}
