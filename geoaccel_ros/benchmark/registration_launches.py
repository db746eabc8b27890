"""Sweep over the shape of the GPU's launch: threads of a block, and what they may use."""

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.benchmark.interleaving import interleave, spread
from geoaccel_ros.benchmark.pictures import draw_bars
from geoaccel_ros.benchmark.registration_conditions import ITERATIONS, Conditions, Part
from geoaccel_ros.benchmark.registration_devices import CudaDevice
from geoaccel_ros.benchmark.registration_loops import iterations_alone
from geoaccel_ros.benchmark.registration_problem import make_problem
from geoaccel_ros.benchmark.report import Table

_BLOCKS = (64, 128, 256)
# What the compiler leaves registers for: threads that run at once on a multiprocessor.
_RESIDENT = (512, 1024)


def launches(conditions: Conditions) -> Part:
    """Blocks of 64 to 256 threads: registers, occupancy and time."""
    title = "Launch of the iterations on the GPU"
    absent = cuda_problem()
    if absent:
        return Part(Table(title, [], f"Left out: {absent}."))
    problem = make_problem(conditions.points)
    device = CudaDevice()
    shapes = [(threads, resident // threads) for resident in _RESIDENT for threads in _BLOCKS]
    times = interleave(
        {shape: iterations_alone(device, problem, launch=shape) for shape in shapes},
        conditions.repetitions,
    )
    rows = [
        {
            "threads_of_a_block": threads,
            "blocks_compiled_for": blocks,
            **device.occupancy("point_to_point", threads, blocks),
            "ms": spread(times[threads, blocks]),
        }
        for threads, blocks in shapes
    ]
    images = conditions.picture("launch")
    for image in images:
        bars = {
            f"{threads} x {blocks}": spread(times[threads, blocks]) for threads, blocks in shapes
        }
        draw_bars(image, bars, "milliseconds")
    note = (
        f"{conditions.points} points, {ITERATIONS} iterations, point to point, without tree and "
        "copies. Occupancy is the share of the threads that a multiprocessor could hold."
    )
    return Part(Table(title, rows, note), images)
