#!/usr/bin/env python3
"""Make the environment that `make demo` and `make test` run in.

With a ROS 2 distribution sourced, the environment sees the distribution's packages and gets from
the package index only what is missing. Elsewhere it gets the pinned wheels of requirements.lock
(ROS 2's among them) and the interfaces/ that those lack, built once.

The work is done in steps. A step leaves a stamp when it is complete, written last and atomically,
that holds a hash of what it depends on. So a second run has nothing to do, a changed lock file is
installed over the old one, and an environment left with half its packages is made anew.
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
CHOSEN = "GEOACCEL_BOOTSTRAP_CHOSEN"  # set for an interpreter that this one started instead


class Refusal(Exception):
    """Something that the user has to mend, said in one line."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make or repair the environment in .venv.")
    parser.add_argument("--dev", action="store_true", help="also what tests, lint and colcon need")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where (default: .venv)")
    options = parser.parse_args()
    try:
        with open(__file__) as script:
            lock(script.fileno())
            Environment(options.venv.absolute(), options.dev, script.fileno()).make()
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

    def __init__(self, path: Path, dev: bool, lock: int) -> None:
        self.path = path
        self.python = path / "bin" / "python"
        self.stamps = path / "stamps"
        self.lock = lock
        self.distribution = sourced_distribution()
        # What was made for development stays so: `make demo` after `make test` removes nothing.
        self.dev = dev or (self.stamps / "dev").exists()
        self.requirements = ROOT / ("requirements-dev.lock" if self.dev else "requirements.lock")

    def make(self) -> None:
        settings = [ROOT / name for name in ("setup.cfg", "setup.py", "pyproject.toml")]
        version = ROOT / "geoaccel_ros" / "__init__.py"
        sources = sorted(path for path in (ROOT / "interfaces").rglob("*") if path.is_file())
        if self.distribution:
            steps = [("packages", [self.requirements, *settings], self.install_missing)]
        else:
            steps = [
                ("packages", [self.requirements], self.install_wheels),
                ("interfaces", [ROOT / "requirements.lock", *sources], self.build_interfaces),
            ]
        steps.append(("geoaccel", [*settings, version], self.install_geoaccel))

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
        digest = hashlib.sha256()
        for path in [Path(__file__), self.path / "pyvenv.cfg", *inputs]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def usable(self) -> bool:
        """Tell whether the environment can be built upon.

        It cannot where its packages were left half installed, where its interpreter is gone, or
        where a distribution has been sourced since (or no longer is).
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
        # Not sys.executable: that may be the very environment that was just removed.
        base = getattr(sys, "_base_executable", sys.executable)
        options = ["--system-site-packages"] if self.distribution else []
        self.run([base, "-m", "venv", *options, self.path])
        self.stamps.mkdir()
        write_atomically(self.stamps / "distribution", str(self.distribution))

    # Without a distribution

    def install_wheels(self) -> None:
        say(f"installing the packages of {self.requirements.name} (minutes the first time)")
        # The lock file is complete: nothing to resolve.
        self.pip("install", "--no-deps", "--requirement", self.requirements)
        self.mend_cmake_exports()

    def mend_cmake_exports(self) -> None:
        """Point the wheels' CMake files at this environment.

        They name the include folders of the machine that built them, Python's and numpy's, and
        CMake refuses folders that do not exist.
        """
        built_with = rb"/opt/python/cp\d+-cp\d+"
        folders = {
            built_with + rb"/include/python3\.\d+": "import sysconfig as s; s.get_path('include')",
            built_with + rb"/lib/[^;\"]*/numpy/_?core/include": "import numpy; numpy.get_include()",
        }
        folders = {pattern: self.value(code).encode() for pattern, code in folders.items()}
        for path in (self.path / "share").rglob("*.cmake"):
            text = mended = path.read_bytes()
            for pattern, folder in folders.items():
                mended = re.sub(pattern, folder, mended)
            if mended != text:
                path.write_bytes(mended)

    def build_interfaces(self) -> None:
        """Build interfaces/ into the environment, where the wheels' own messages lie."""
        cmake = self.path / "bin" / "cmake"
        environ = {
            **os.environ,
            "PATH": f"{cmake.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "AMENT_PREFIX_PATH": str(self.path),
            "CMAKE_PREFIX_PATH": str(self.path),
        }
        jobs = str(os.cpu_count() or 1)
        for name in INTERFACES:
            say(f"building {name}")
            source = ROOT / "interfaces" / name
            build = self.path / "build" / name
            shutil.rmtree(build, ignore_errors=True)
            settings = {
                "BUILD_TESTING": "OFF",
                "CMAKE_BUILD_TYPE": "Release",
                "CMAKE_INSTALL_PREFIX": self.path,
                "Python3_EXECUTABLE": self.python,
            }
            options = [f"-D{key}={value}" for key, value in settings.items()]
            for command in (
                [cmake, "-S", source, "-B", build, "-G", "Unix Makefiles", *options],
                [cmake, "--build", build, "--parallel", jobs],
                [cmake, "--install", build],
            ):
                self.run(command, quietly=True, env=environ)
        shutil.rmtree(self.path / "build")
        self.check_imports("make clean, and try again")

    # With a distribution

    def install_missing(self) -> None:
        """Install what the distribution lacks, and leave what it has as it is."""
        self.check_imports("rosdep install --from-paths . --ignore-src")
        say("installing what the distribution lacks (minutes the first time)")
        # The distribution's messages are compiled for its numpy: another would crash them.
        constraints = self.path / "constraints.txt"
        constraints.write_text("numpy==" + self.value("import numpy; numpy.__version__"))
        # The distribution's setuptools may be too old to install geoaccel_ros editable.
        wanted = [*direct_dependencies("dev" if self.dev else None), "setuptools>=70.1,<80"]
        self.pip("install", "--constraint", constraints, *wanted)

    # Both

    def install_geoaccel(self) -> None:
        say("installing geoaccel_ros")
        # The build backend is in the environment already, so that this needs no network.
        self.pip("install", "--no-deps", "--no-build-isolation", "--editable", ROOT)

    def pip(self, command: str, *arguments: str | Path) -> None:
        options = ["--quiet", "--disable-pip-version-check"]
        self.run([self.python, "-m", "pip", command, *options, *arguments])

    def value(self, code: str) -> str:
        """Return the value of the last expression of a line of Python, in the environment."""
        statements, _, expression = code.rpartition(";")
        code = f"{statements}; print({expression.strip()})"
        return self.run([self.python, "-c", code], quietly=True).strip()

    def check_imports(self, remedy: str) -> None:
        for module in ["rclpy", *(f"{name}.msg" for name in INTERFACES)]:
            command = [self.python, "-c", f"import {module}"]
            answer = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if answer.returncode:
                reason = answer.stderr.strip().splitlines()[-1]
                raise Refusal(f"{module} cannot be imported ({reason}): {remedy}")

    def run(self, command: list[str | Path], quietly: bool = False, env=None) -> str:
        """Run a command and return what it printed; quietly, it is shown only where it fails.

        The command holds the lock too: where this script is killed and the command is not, the
        next run waits for its end.
        """
        answer = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quietly else None,
            stderr=subprocess.STDOUT if quietly else None,
            text=True,
            pass_fds=(self.lock,),
        )
        if answer.returncode:
            print(answer.stdout or "", file=sys.stderr)
            raise subprocess.CalledProcessError(answer.returncode, command)
        return answer.stdout or ""


def lock(descriptor: int) -> None:
    """Wait until no other run is at work; it may well have done everything."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another run to end")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def sourced_distribution() -> str | None:
    """Return the name of the ROS 2 distribution whose setup file was sourced, or None."""
    if not os.environ.get("AMENT_PREFIX_PATH"):
        return None
    return os.environ.get("ROS_DISTRO")


def check_interpreter(distribution: str | None) -> None:
    """Go on with an interpreter that serves: this one, another on the PATH, or refuse."""
    version = sys.version_info[:2]
    spoken = f"Python {platform.python_version()}"
    if distribution:
        if version < OLDEST or importlib.util.find_spec("rclpy") is None:
            start_instead("/usr/bin/python3")
            raise Refusal(
                f"ROS 2 {distribution} is sourced, but {spoken} finds no rclpy or is older than "
                "3.10: name the distribution's interpreter (make setup PYTHON=...)"
            )
        return
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Refusal(
            f"ROS 2 has wheels for Linux on x86_64, not for {platform.system()} on "
            f"{platform.machine()}: source a ROS 2 distribution first"
        )
    if version not in WITH_WHEELS or sys.implementation.name != "cpython":
        start_instead("python3.12", "python3.11")
        reason = "is too old" if version < OLDEST else "has no wheels of ROS 2"
        raise Refusal(
            f"{spoken} {reason}: install CPython 3.11 or 3.12 (make setup PYTHON=python3.12), "
            "or source a ROS 2 distribution first"
        )


def start_instead(*candidates: str) -> None:
    """Start this script anew with the first interpreter that runs; return where there is none."""
    if os.environ.get(CHOSEN):
        return
    for candidate in candidates:
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            os.execve(found, [found, *sys.argv], {**os.environ, CHOSEN: found})


def check_tools(distribution: str | None) -> None:
    """Refuse now what would fail in minutes."""
    release = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Refusal(f"{sys.executable} has no venv module: apt install {release}-venv")
    if distribution:
        return  # nothing is compiled
    for variable, default in (("CC", "cc"), ("CXX", "c++")):
        compiler = (os.environ.get(variable) or default).split()[0]
        if shutil.which(compiler) is None:
            raise Refusal(f"no compiler '{compiler}' (C and C++ are needed): apt install g++")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise Refusal(f"no Python.h for {sys.executable}: apt install {release}-dev")
    if shutil.which("make") is None:
        raise Refusal("no make: apt install make")


def direct_dependencies(extra: str | None) -> list[str]:
    """Return what setup.cfg asks of pip, and of one extra."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    text = setup["options"]["install_requires"]
    if extra:
        text += "\n" + setup["options.extras_require"][extra]
    return [line for line in text.splitlines() if line]


def write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    temporary.replace(path)


def say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
