#!/usr/bin/env python3
"""Make the environment that `make demo` and `make test` run in.

With a ROS 2 distribution sourced, the environment sees the distribution's packages and gets from the
package index only what is missing. Elsewhere it gets the pinned wheels of requirements.lock (ROS 2's
among them) and the interfaces/ that those lack, built once.

The work is done in steps. A step leaves a stamp when it is complete, written last and atomically, that
holds a hash of what it depends on; so a second run has nothing to do, a changed lock file is installed
over the old one, and an environment whose packages were left half installed is made anew.
"""

from __future__ import annotations

import argparse
import configparser
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INTERFACES = ("tf2_msgs", "point_cloud_interfaces")
OLDEST = (3, 10)
WITH_WHEELS = ((3, 11), (3, 12))  # the CPythons that ROS 2 has wheels for
CHOSEN = "GEOACCEL_BOOTSTRAP_CHOSEN"  # set once another interpreter was started, so that it starts no third


class Refusal(Exception):
    """Something that the user has to mend, said in one line."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make or repair the environment in .venv.")
    parser.add_argument("--dev", action="store_true", help="also what tests, lint and colcon need")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where (default: .venv)")
    options = parser.parse_args()
    try:
        with open(__file__) as lock:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # two makes at once: the second waits and finds it done
            Environment(options.venv.absolute(), options.dev).make()
    except Refusal as refusal:
        print(f"bootstrap: {refusal}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd[:4]))
        print(f"bootstrap: '{command} …' failed, see above", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bootstrap: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


class Environment:
    """A virtual environment and the steps that make it."""

    def __init__(self, path: Path, dev: bool) -> None:
        self.path = path
        self.python = path / "bin" / "python"
        self.stamps = path / "stamps"
        self.distribution = sourced_distribution()
        # What was once made for development stays so: `make demo` after `make test` removes nothing.
        self.dev = dev or (self.stamps / "dev").exists()

    def make(self) -> None:
        lock = ROOT / "requirements.lock"
        packages = ROOT / "requirements-dev.lock" if self.dev else lock
        settings = [ROOT / name for name in ("setup.cfg", "setup.py", "pyproject.toml")]
        sources = sorted(path for path in (ROOT / "interfaces").rglob("*") if path.is_file())
        if self.distribution:
            steps = [("packages", [packages, settings[0]], self.install_missing)]
        else:
            steps = [
                ("packages", [packages], self.install_wheels),
                ("interfaces", [lock, *sources], self.build_interfaces),
            ]
        steps.append(("geoaccel", settings, self.install_geoaccel))

        if not self.usable():
            self.create()
        for name, inputs, step in steps:
            stamp = self.stamps / name
            key = self.key(inputs)
            if stamp.exists() and stamp.read_text() == key:
                continue
            stamp.unlink(missing_ok=True)
            step()
            write_atomically(stamp, key)
        if self.dev:
            write_atomically(self.stamps / "dev", "")

    def key(self, inputs: list[Path]) -> str:
        """Return the hash of everything that a step's result depends on."""
        digest = hashlib.sha256(str(self.distribution).encode())
        for path in [Path(__file__), self.path / "pyvenv.cfg", *inputs]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def usable(self) -> bool:
        """Tell whether the environment can be built upon.

        It cannot where its packages were left half installed, where its interpreter is gone, or where a
        distribution has been sourced since (or no longer is).
        """
        if not (self.stamps / "packages").exists() or not os.access(self.python, os.X_OK):
            return False
        return (self.stamps / "distribution").read_text() == str(self.distribution)

    def create(self) -> None:
        check_interpreter(self.distribution)
        check_tools(self.distribution)
        if self.path.exists():
            if not (self.path / "pyvenv.cfg").exists() and any(self.path.iterdir()):
                raise Refusal(f"{self.path} is in the way: it is no virtual environment")
            shutil.rmtree(self.path)
        say(f"making {self.path} with Python {platform.python_version()}")
        run(
            [sys.executable, "-m", "venv", self.path]
            + (["--system-site-packages"] if self.distribution else [])
        )
        self.stamps.mkdir()
        write_atomically(self.stamps / "distribution", str(self.distribution))

    def pip(self, *arguments: str | Path) -> None:
        run([self.python, "-m", "pip", "--disable-pip-version-check", *arguments])

    # Without a distribution

    def install_wheels(self) -> None:
        name = "requirements-dev.lock" if self.dev else "requirements.lock"
        say(f"installing the packages of {name} (minutes the first time)")
        # The lock file is complete: nothing to resolve.
        self.pip("install", "--quiet", "--no-deps", "--requirement", ROOT / name)
        self.mend_cmake_exports()

    def mend_cmake_exports(self) -> None:
        """Point the wheels' CMake files at this environment.

        They name the include folders of the machine that built them, Python's and numpy's, and CMake
        refuses folders that do not exist.
        """
        code = (
            "import numpy, sysconfig as s; print(s.get_path('include')); print(numpy.get_include())"
        )
        answer = subprocess.run(
            [self.python, "-c", code], stdout=subprocess.PIPE, text=True, check=True
        )
        include, numpy_include = answer.stdout.split("\n")[:2]
        built_with = rb"/opt/python/cp\d+-cp\d+"
        for path in (self.path / "share").rglob("*.cmake"):
            text = path.read_bytes()
            mended = re.sub(
                built_with + rb"/lib/[^;\"]*/numpy/_?core/include", numpy_include.encode(), text
            )
            mended = re.sub(built_with + rb"/include/python3\.\d+", include.encode(), mended)
            if mended != text:
                path.write_bytes(mended)

    def build_interfaces(self) -> None:
        """Build interfaces/ into the environment, where the wheels' own messages lie."""
        scripts = self.path / "bin"
        environ = {
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "AMENT_PREFIX_PATH": str(self.path),
            "CMAKE_PREFIX_PATH": str(self.path),
        }
        for name in INTERFACES:
            say(f"building {name}")
            build = self.path / "build" / name
            shutil.rmtree(build, ignore_errors=True)
            configure = [
                *(scripts / "cmake", "-S", ROOT / "interfaces" / name, "-B", build),
                *("-G", "Unix Makefiles", "-DBUILD_TESTING=OFF", "-DCMAKE_BUILD_TYPE=Release"),
                f"-DCMAKE_INSTALL_PREFIX={self.path}",
                f"-DPython3_EXECUTABLE={self.python}",
                f"-DPython_EXECUTABLE={self.python}",
            ]
            run_quietly(configure, environ)
            jobs = str(os.cpu_count() or 1)
            run_quietly([scripts / "cmake", "--build", build, "--parallel", jobs], environ)
            run_quietly([scripts / "cmake", "--install", build], environ)
        shutil.rmtree(self.path / "build")
        self.check_imports("install the lock file anew by removing .venv")

    # With a distribution

    def install_missing(self) -> None:
        """Install what the distribution lacks, and leave what it has as it is."""
        self.check_imports(f"install them with rosdep, or as ros-{self.distribution}-<package>")
        say("installing what the distribution lacks (minutes the first time)")
        extras = ("dev",) if self.dev else ()
        # The distribution's messages are compiled for its numpy: another would crash them.
        constraints = self.path / "constraints.txt"
        code = "import numpy; print('numpy==' + numpy.__version__)"
        answer = subprocess.run(
            [self.python, "-c", code], stdout=subprocess.PIPE, text=True, check=False
        )
        constraints.write_text(answer.stdout)
        self.pip("install", "--quiet", "--constraint", constraints, *direct_dependencies(extras))

    # Both

    def install_geoaccel(self) -> None:
        say("installing geoaccel_ros")
        # The build backend is in the environment already, so that this needs no network.
        self.pip("install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", ROOT)

    def check_imports(self, remedy: str) -> None:
        modules = ["rclpy", *(f"{name}.msg" for name in INTERFACES)]
        for module in modules:
            answer = subprocess.run(
                [self.python, "-c", f"import {module}"], stderr=subprocess.PIPE, text=True
            )
            if answer.returncode:
                reason = answer.stderr.strip().splitlines()[-1]
                raise Refusal(f"{module} cannot be imported ({reason}): {remedy}")


def sourced_distribution() -> str | None:
    """Return the name of the ROS 2 distribution whose setup file was sourced, or None."""
    if not os.environ.get("AMENT_PREFIX_PATH"):
        return None
    return os.environ.get("ROS_DISTRO")


def check_interpreter(distribution: str | None) -> None:
    """Go on with an interpreter that serves: this one, another on the PATH, or refuse."""
    version = sys.version_info[:2]
    spoken = f"Python {platform.python_version()}"
    if version < OLDEST:
        raise Refusal(
            f"{spoken} is too old: 3.10 is the oldest that serves (make setup PYTHON=python3.11)"
        )
    if distribution:
        if importlib.util.find_spec("rclpy") is None:
            start_instead(["/usr/bin/python3"])
            raise Refusal(
                f"ROS 2 {distribution} is sourced, but {spoken} finds no rclpy: "
                "run with the distribution's interpreter (make setup PYTHON=/usr/bin/python3)"
            )
        return
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Refusal(
            f"ROS 2 has wheels for Linux on x86_64, not for {platform.system()} on "
            f"{platform.machine()}: source a ROS 2 distribution first"
        )
    if version not in WITH_WHEELS or sys.implementation.name != "cpython":
        start_instead(["python3.12", "python3.11"])
        raise Refusal(
            f"ROS 2 has wheels for CPython 3.11 and 3.12, not for {spoken}: "
            "install one of them (make setup PYTHON=python3.12), or source a ROS 2 distribution"
        )


def start_instead(candidates: list[str]) -> None:
    """Start this script anew with the first interpreter that runs; return where there is none."""
    if os.environ.get(CHOSEN):
        return
    for candidate in candidates:
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            os.execve(found, [found, *sys.argv], {**os.environ, CHOSEN: found})


def check_tools(distribution: str | None) -> None:
    """Refuse now what would fail in minutes."""
    release = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Refusal(f"{sys.executable} has no venv module: apt install {release}-venv")
    if distribution:
        return  # nothing is compiled
    if not (
        shutil.which(os.environ.get("CXX", "c++")) and shutil.which(os.environ.get("CC", "cc"))
    ):
        raise Refusal("no C and C++ compiler (cc, c++): apt install g++")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise Refusal(f"no Python.h for {sys.executable}: apt install {release}-dev")
    if shutil.which("make") is None:
        raise Refusal("no make: apt install make")


def direct_dependencies(extras: tuple[str, ...]) -> list[str]:
    """Return what setup.cfg asks of pip, and of its extras."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    texts = [setup["options"]["install_requires"]]
    texts += [setup["options.extras_require"][extra] for extra in extras]
    return [line for text in texts for line in text.splitlines() if line and line[0] != "#"]


def run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def run_quietly(command: list[str | Path], environ: dict[str, str]) -> None:
    """Run a command and show what it printed only where it fails."""
    answer = subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if answer.returncode:
        print(answer.stdout, file=sys.stderr)
        raise subprocess.CalledProcessError(answer.returncode, command)


def write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    temporary.replace(path)


def say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
