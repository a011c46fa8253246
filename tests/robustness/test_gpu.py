"""The GPU engine. Without a GPU its source is compiled by a C++ compiler and its warps run
on the host, lane by lane; with one, the same contract runs on the card: pytest -m gpu."""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import site
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.formula.programs import Programs
from rhovec.robustness import cpu, lowering

from .contract import EngineContract, random_mixture, random_text, random_traces

torch = pytest.importorskip("torch")
from rhovec.robustness import gpu  # noqa: E402

HERE = Path(__file__).parent
LAUNCH = """
extern "C" void launch_REAL_TRACES(int blocks, int threads, PARAMETERS) {
  gridDim.x = blocks; blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (int first = 0; first < threads; first += 32)
      host::run_warp(first, [&] { evaluate<REAL, TRACES>(ARGUMENTS); });
}
"""


@pytest.fixture(scope="session")
def host_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    folder = tmp_path_factory.mktemp("ops")
    (parameters,) = re.findall(r"__global__ void evaluate\(([^)]*)\)", gpu._SOURCE.read_text())
    arguments = ", ".join(re.findall(r"\w+(?=,|$)", parameters))
    launches = "".join(
        LAUNCH.replace("PARAMETERS", parameters.replace("Real", real))
        .replace("ARGUMENTS", arguments).replace("REAL", real).replace("TRACES", str(traces))
        for real in ("float", "double")
        for traces in gpu.TRACES_A_WARP
    )  # fmt: skip
    source = folder / "host.cpp"
    source.write_text(f'#include "{HERE}/host_cuda.h"\n#include "{gpu._SOURCE}"\n{launches}')
    command = [
        compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas",
        "-ffp-contract=off", "-shared", "-fPIC", str(source), "-o", str(folder / "ops.so"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "ops.so"))


@pytest.fixture
def on_host(host_library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """gpu.evaluate on CPU tensors: only the launch itself is replaced."""

    def kernel(device: int, real: torch.dtype, traces: int) -> Any:
        name = "float" if real == torch.float32 else "double"
        launch = getattr(host_library, f"launch_{name}_{traces}")

        def call(grid: Any, block: Any, args: list[Any], shared_mem: int) -> None:
            assert shared_mem <= 1 << 22
            plain = [ctypes.c_void_p(a.data_ptr()) if torch.is_tensor(a) else a for a in args]
            launch(grid[0], block[0], *plain)

        return call

    monkeypatch.setattr(gpu, "_kernel", kernel)
    monkeypatch.setattr(gpu.torch.cuda, "device", lambda _: contextlib.nullcontext())


@pytest.mark.usefixtures("on_host")
class TestOnHost(EngineContract):
    formulae = 1000

    def evaluate(
        self,
        formulae: list[Formula],
        traces: np.ndarray,
        trace: bool,
        end: str,
        boolean: bool = False,
    ) -> np.ndarray:
        columns = {f"x_{i}": i for i in range(traces.shape[1])}
        out = gpu.evaluate(
            Programs.pack(formulae), torch.from_numpy(traces), columns,
            trace=trace, strict=end == "strict", boolean=boolean,
        )  # fmt: skip
        return (out > 0 if boolean else out).numpy()

    def test_device_memory_instead_of_shared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu, "SHARED_BYTES", (16,))
        monkeypatch.setattr(gpu, "LONG_SHARED_BYTES", ())
        monkeypatch.setattr(gpu, "ARENA_BYTES", 1 << 16)  # so that warps take several tasks in turn
        self.test_equals_the_oracle("hold")
        self.test_past_and_future_equal_the_oracle("hold")
        self.test_a_batch_is_its_members()

    def test_slices_of_traces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu, "SLICE_BYTES", 1)
        self.test_a_batch_is_its_members()

    def test_satisfaction_equals_the_cpu(self) -> None:
        rng = np.random.default_rng(0)
        formulae = [rv.parse(random_text(rng, 4)) for _ in range(200)]
        programs = Programs.pack(formulae + [random_mixture(rng, 3) for _ in range(100)])
        x = np.round(random_traces(rng, 40, 25, self.dtype), 1)
        columns = {f"x_{i}": i for i in range(3)}
        want = cpu.evaluate(programs, x, columns, trace=True, boolean=True)
        got = gpu.evaluate(programs, torch.from_numpy(x), columns, trace=True, boolean=True)
        assert np.array_equal(got.numpy(), want)


class TestOnHostFloat64(TestOnHost):
    dtype = np.float64
    formulae = 200


def compile_by_nvidia(*options: bytes) -> None:
    """By NVIDIA's own compiler, which needs no GPU (from PyPI; part of the dev extra)."""
    folders = [Path(folder, "nvidia") for folder in site.getsitepackages()]
    libraries = [path for folder in folders for path in folder.glob("**/libnvrtc.so.*")]
    if not libraries:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    nvrtc = ctypes.CDLL(str(libraries[0]))
    program = ctypes.c_void_p()
    source = gpu._SOURCE.read_bytes()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"ops.cu", 0, None, None) == 0
    for real in ("float", "double"):
        for traces in gpu.TRACES_A_WARP:
            name = f"evaluate<{real}, {traces}>".encode()
            assert nvrtc.nvrtcAddNameExpression(program, name) == 0
    given = (ctypes.c_char_p * len(options))(*options)
    result = nvrtc.nvrtcCompileProgram(program, len(options), given)
    log = ctypes.create_string_buffer(1 << 16)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert result == 0, log.value.decode()


def test_source_compiles_for_hopper() -> None:
    """To PTX, without optimisation; `make soak` makes machine code, which takes half a minute."""
    compile_by_nvidia(b"--gpu-architecture=compute_90", b"--device-debug")


def test_source_and_lowering_agree_on_numbers() -> None:
    """The enums of ops.cu are the constants of operators.py and lowering.py."""
    enums = re.findall(r"enum \{([^}]*)\}", gpu._SOURCE.read_text())
    for home, names in zip((ops, lowering, lowering), enums, strict=True):
        for value, name in enumerate(re.findall(r"\w+", names)):
            assert getattr(home, name) == value, name


def test_classes_cover_every_formula_once() -> None:
    arena = np.array([1, 16, 17, 384, 385, 5000, 10**7])
    for itemsize in (4, 8):
        classes = gpu.memory_classes(arena, itemsize)
        assert sorted(np.concatenate([c.members for c in classes]).tolist()) == list(range(7))
        assert all(c.rows >= arena[c.members].max() for c in classes)
        assert [c.in_shared for c in classes].count(False) == 1


def test_without_cuda_the_error_says_what_to_install() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(rv.errors.MissingDependencyError, match="CUDA"):
        gpu.evaluate(Programs.pack([rv.parse("x_0 > 0")]), torch.zeros(1, 1, 1), {"x_0": 0})


@pytest.mark.gpu
class TestOnCard(EngineContract):
    formulae = 2400

    def evaluate(
        self,
        formulae: list[Formula],
        traces: np.ndarray,
        trace: bool,
        end: str,
        boolean: bool = False,
    ) -> np.ndarray:
        x = torch.from_numpy(traces).cuda()
        out = (rv.satisfaction if boolean else rv.robustness)(formulae, x, trace=trace, end=end)
        assert out.is_cuda
        return out.cpu().numpy()

    @pytest.mark.parametrize("points", [1, 2, 7, 31, 100, 128, 333, 1000, 2500, 4096])
    def test_equals_the_cpu_engine(self, points: int) -> None:
        """Ten lengths, a thousand formulae each; with ==, as both do the same arithmetic."""
        rng = np.random.default_rng(points)
        formulae = rv.random_formulae(700, seed=points)
        formulae += [rv.parse(random_text(rng, int(rng.integers(1, 6)))) for _ in range(300)]
        formulae += [random_mixture(rng, int(rng.integers(1, 5))) for _ in range(300)]
        x = random_traces(rng, 70, points, self.dtype)
        got = rv.robustness(formulae, torch.from_numpy(x).cuda()).cpu().numpy()
        assert np.array_equal(got, rv.robustness(formulae, x))
        few = formulae[::50]
        whole = rv.robustness(few, torch.from_numpy(x[:3]).cuda(), trace=True).cpu().numpy()
        assert np.array_equal(whole, rv.robustness(few, x[:3], trace=True))
        holds = rv.satisfaction(formulae, torch.from_numpy(x).cuda()).cpu().numpy()
        assert np.array_equal(holds, rv.satisfaction(formulae, x))


@pytest.mark.gpu
class TestOnCardFloat64(TestOnCard):
    dtype = np.float64
    formulae = 400
