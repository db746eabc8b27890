"""Where the installed executables begin: signals are handled before anything heavy is imported.

Importing a node takes seconds, and Python's own handlers would end it with a traceback meanwhile.
"""

import importlib
import os
import signal
import sys


def geoaccel() -> int:
    """Run the command."""
    # Nothing has been made yet, so nothing is to be undone; 130 is what a shell expects of Ctrl-C.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    command = importlib.import_module("geoaccel_ros.cli.main")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return command.main()


def lidar_odometry() -> int:
    """Run the node."""
    return _run_node("lidar_odometry")


def cloud_encoder() -> int:
    """Run the node."""
    return _run_node("cloud_encoder")


def cloud_decoder() -> int:
    """Run the node."""
    return _run_node("cloud_decoder")


def mppi_controller() -> int:
    """Run the node."""
    return _run_node("mppi_controller")


def mujoco_simulation() -> int:
    """Run the node."""
    return _run_node("mujoco_simulation")


def _run_node(name: str) -> int:
    # The main of all nodes takes the signals over while there is a node, and gives them back here.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    return importlib.import_module(f"geoaccel_ros.nodes.{name}").main()


if __name__ == "__main__":
    # As `python -m geoaccel_ros.executables NAME …`, where nothing is installed in a bin folder.
    sys.exit(globals()[sys.argv.pop(1)]())
