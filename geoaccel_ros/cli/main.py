"""The command ``geoaccel``: one sub-command a module, errors as one line."""

import argparse
import importlib
import sys

from geoaccel_ros import __version__
from geoaccel_ros.backend import BackendError
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.output import check_target
from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.memory import keep_freed_memory

# The module of each command. Only that of the one to run is imported: others take seconds, or need
# what a machine that only registers clouds does not have.
_MODULES = {
    "demo": "demo.command",
    "odometry": "odometry",
    "register": "register",
    "compress": "compress",
    "decompress": "compress",
    "inspect": "compress",
    "bench": "bench",
    "mppi": "mppi",
    "info": "info",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command.

    Returns
    -------
    int
        0 when it did its work, 1 when it could not (one line on standard error says why), 2 for
        wrong usage, 130 when interrupted (one line says so).
    """
    keep_freed_memory()
    arguments = sys.argv[1:] if arguments is None else arguments
    command = " ".join(["geoaccel", *arguments[:1]])
    try:
        # Within: what a command imports takes a while, in which Ctrl-C may come.
        args = _parser(arguments).parse_args(arguments)
        if getattr(args, "json", None) is not None:
            check_target(args.json)
        return args.run(args)
    except (UserError, ConfigurationError, BackendError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of standard output has left (`geoaccel info | head`): nobody is to be told.
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print(f"{command}: interrupted", file=sys.stderr)
        return 130


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="geoaccel",
        description="LiDAR odometry, point-cloud compression and MPPI control, accelerated.",
    )
    parser.add_argument("--version", action="version", version=f"geoaccel {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = _MODULES.get(arguments[0]) if arguments else None
    for name in [asked] if asked else dict.fromkeys(_MODULES.values()):
        importlib.import_module(f"geoaccel_ros.cli.{name}").add_parsers(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
