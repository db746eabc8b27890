"""What keeps a benchmark from running, in one line."""


class BenchmarkError(Exception):
    """A benchmark cannot run as asked; the message names the reason and the remedy."""


def no_ros(error: ImportError) -> BenchmarkError:
    """Return what to tell where a benchmark of nodes cannot import ROS."""
    reason = str(error).partition("\n")[0]
    return BenchmarkError(
        f"no ROS 2 here ({reason}): source a distribution or pip install 'geoaccel_ros[ros]'"
    )
