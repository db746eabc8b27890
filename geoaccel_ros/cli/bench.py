"""geoaccel bench: what the capabilities cost on this machine, alone or beside their peers."""

import argparse
import dataclasses
import datetime
import sys
from pathlib import Path

from geoaccel_ros.benchmark import BENCHMARKS, load
from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.machine import PACKAGES, describe_machine
from geoaccel_ros.benchmark.options import positive_int
from geoaccel_ros.benchmark.peers import take_part
from geoaccel_ros.benchmark.report import markdown
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.output import write_json
from geoaccel_ros.versions import installed_versions


class _BenchmarkParser(argparse.ArgumentParser):
    """Asks a benchmark for its options when it is the one to run: importing it takes seconds."""

    def __init__(self, *, benchmark: str, **kwargs) -> None:
        super().__init__(**kwargs)
        self._benchmark = benchmark

    def parse_known_args(self, args=None, namespace=None):
        load(self._benchmark).add_options(self)
        return super().parse_known_args(args, namespace)


def add_parsers(subparsers: argparse._SubParsersAction) -> None:
    """Add the command, with a sub-command for each benchmark."""
    parser = subparsers.add_parser(
        "bench",
        help="times on this machine, beside other packages",
        description="Contenders take turns in one run; the first round warms up and is dropped.",
    )
    benchmarks = parser.add_subparsers(
        dest="benchmark", required=True, metavar="NAME", parser_class=_BenchmarkParser
    )
    for name, line in BENCHMARKS.items():
        own = benchmarks.add_parser(name, benchmark=name, help=line, description=line)
        own.add_argument(
            "--peers", action="store_true", help="run the other packages too, in the same run"
        )
        own.add_argument(
            "--repetitions", type=positive_int, default=7, metavar="N",
            help="runs of each contender (default: %(default)s)",
        )  # fmt: skip
        own.add_argument(
            "--threads", type=positive_int, default=1, metavar="N",
            help="CPU threads of each contender that can be told (default: %(default)s)",
        )  # fmt: skip
        own.add_argument("--output", type=Path, metavar="DIR", help="draw pictures there")
        own.add_argument(
            "--json", metavar="FILE", help="write the results as JSON, '-' for standard output"
        )
        own.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a benchmark and print its tables as Markdown."""
    benchmark = load(args.benchmark)
    if args.output is not None:
        try:
            args.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make folder '{args.output}': {error.strerror}") from None
    if args.peers and not benchmark.PEERS:
        print(f"geoaccel bench: no other package is known to {args.benchmark}", file=sys.stderr)
    peers, left_out = take_part(benchmark.PEERS) if args.peers else ([], [])
    try:
        report = benchmark.run(args, peers)
    except BenchmarkError as error:
        raise UserError(str(error)) from None
    versions = installed_versions(PACKAGES)
    for peer in peers:
        versions |= peer.versions()
    content = {
        "title": report.title,
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": describe_machine(args.threads),
        "versions": versions,
        "left_out": left_out,
        "rows": report.rows,
        "tables": [dataclasses.asdict(table) for table in report.tables],
        "images": [str(path) for path in report.images],
    }
    if args.json:
        write_json(content, args.json)
    if args.json != "-":
        print(markdown(content))
    return 0
