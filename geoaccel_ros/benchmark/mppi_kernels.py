"""What each CUDA kernel of an update takes of the device."""

import numpy as np

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.benchmark.mppi_problems import CARTPOLE, DIFF_DRIVE, QUADROTOR, bare_problem
from geoaccel_ros.benchmark.report import Table

_TITLE = "CUDA kernels"


def kernel_table() -> Table:
    """Return registers, local and shared memory and occupancy of each kernel, for each system.

    Local memory is where registers are spilled to. Occupancy is of the threads that a
    multiprocessor can hold, at the size of the blocks that are launched.
    """
    problem = cuda_problem()
    if problem:
        return Table(_TITLE, [], f"None were compiled: {problem}.")
    from numba import cuda

    from geoaccel_ros.control.search_cuda import CudaSearch

    context = cuda.current_context()
    most = context.device.MAX_THREADS_PER_MULTIPROCESSOR
    rows = {}
    for shipped in (CARTPOLE, QUADROTOR, DIFF_DRIVE):
        system = shipped.loaded()
        parameters = system.parameters()
        tried = system.tried_controls(parameters)
        search = CudaSearch(shipped.config(), system, [system.pack(parameters)], tried)
        none = np.zeros((shipped.horizon, len(system.control), 1), np.float32)
        search.search(bare_problem(shipped, none))
        for name, (kernel, threads) in search.kernels().items():
            # Compiled for systems of as many controls, whichever they are.
            of = shipped.system if name == "roll_out" else "every"
            for signature, compiled in kernel.overloads.items():
                function = compiled.library.get_cufunc()
                blocks = context.get_active_blocks_per_multiprocessor(function, threads, 0)
                rows[name, of, signature] = {
                    "kernel": name,
                    "system": of,
                    "threads_a_block": threads,
                    "registers": compiled.regs_per_thread,
                    "local_bytes": compiled.local_mem_per_thread,
                    "shared_bytes": compiled.shared_mem_per_block,
                    "occupancy": blocks * threads / most,
                }
    note = "Local bytes of a thread are those spilled from registers."
    return Table(_TITLE, list(rows.values()), note)
