"""Every .cu file compiles for every GPU that the package supports, without a GPU."""

import os
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "geoaccel_ros"
FILES = sorted(PACKAGE.glob("**/*.cu"))
# Turing, Ampere (server, Orin), Ada, Hopper, Blackwell (server, desktop).
CAPABILITIES = (75, 80, 87, 89, 90, 100, 120)

# What the host decides when it compiles.
DEFINES = {
    "alignment.cu": ("-DMETHOD=2", "-DBLOCK_THREADS=256", "-DBLOCKS_PER_MULTIPROCESSOR=2"),
}


@pytest.fixture(scope="module")
def nvrtc():
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs CuPy and nvidia-cuda-nvrtc (extra [dev]): {error}")
        pytest.skip(f"needs CuPy and nvidia-cuda-nvrtc (extra [dev]): {error}")
    return nvrtc


def test_there_are_kernels():
    assert FILES


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_compiles(nvrtc, file, capability):
    program = nvrtc.createProgram(file.read_text(), file.name, (), ())
    try:
        nvrtc.compileProgram(
            program,
            (
                "--std=c++17",
                f"--gpu-architecture=sm_{capability}",
                f"-I{file.parent}",
                *DEFINES.get(file.name, ()),
            ),
        )
        assert len(nvrtc.getCUBIN(program)) > 100
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)


def test_structures_lie_alike_in_python_and_cuda(nvrtc):
    """What NumPy lays out is what kernels read: sizes and offsets."""
    from geoaccel_ros.registration.cuda import local_map, scan_matching, sweep

    folder = PACKAGE / "registration" / "cuda"
    structures = {
        "sweep.cu": sweep.STRUCTURES,
        "local_map.cu": local_map.STRUCTURES,
        "scan_matching.cu": scan_matching.STRUCTURES,
    }
    for name, dtypes in structures.items():
        code = (folder / name).read_text()
        for structure, dtype in dtypes.items():
            code += f'\nstatic_assert(sizeof({structure}) == {dtype.itemsize}, "{structure}");'
            for field in dtype.names:
                place = f"__builtin_offsetof({structure}, {field})"
                code += f'\nstatic_assert({place} == {dtype.fields[field][1]}, "{field}");'
        program = nvrtc.createProgram(code, name, (), ())
        try:
            nvrtc.compileProgram(
                program, ("--std=c++17", "--gpu-architecture=sm_90", f"-I{folder}")
            )
        except nvrtc.NVRTCError:
            pytest.fail(nvrtc.getProgramLog(program))
        finally:
            nvrtc.destroyProgram(program)
