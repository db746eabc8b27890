#!/usr/bin/env python3
"""Write config/<node>.yaml from the nodes' typed configurations: every parameter, with its comment.

python tools/generate_config.py            # after a parameter was added or changed
python tools/generate_config.py --check    # exit status 1 where a file is out of date
"""

import argparse
import importlib
import sys
import textwrap
from pathlib import Path

import yaml

_CONFIG = Path(__file__).resolve().parent.parent / "config"
_NODES = {
    "lidar_odometry": "LidarOdometryConfig",
    "cloud_encoder": "CloudEncoderConfig",
    "cloud_decoder": "CloudDecoderConfig",
    "mppi_controller": "MppiControllerConfig",
    "mujoco_simulation": "MujocoSimulationConfig",
}


def node_yaml(name: str) -> str:
    """Return the parameter file of a node: defaults, each under its description."""
    module = importlib.import_module(f"geoaccel_ros.nodes.{name}")
    config = getattr(module, _NODES[name])
    lines = [f"# Every parameter of {name} and its default; made by tools/generate_config.py."]
    if any(parameter.live for parameter in config.parameters()):
        lines.append("# Those that are live may change while the node is active.")
    lines += [f"/**/{name}:", "  ros__parameters:"]
    for parameter in config.parameters():
        facts = " ".join(filter(None, [parameter.range_text(), parameter.unit]))
        when = "live" if parameter.live else "at start only" if parameter.read_only else ""
        facts = "; ".join(filter(None, [facts, when]))
        comment = parameter.description.rstrip(".") + (f" ({facts})." if facts else ".")
        lines += [f"    # {line}" for line in textwrap.wrap(comment, 94)]
        if parameter.is_list and not parameter.default:
            # ROS cannot read an empty list: not to be set is to be empty.
            lines.append(f"    # {parameter.name}: []")
        else:
            value = list(parameter.default) if parameter.is_list else parameter.default
            text = yaml.safe_dump(value, default_flow_style=True, width=1000).splitlines()[0]
            lines.append(f"    {parameter.name}: {text}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    stale = []
    for name in _NODES:
        path, text = _CONFIG / f"{name}.yaml", node_yaml(name)
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(path.name)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"out of date: {', '.join(stale)}; run python tools/generate_config.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
