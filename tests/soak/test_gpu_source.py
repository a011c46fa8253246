"""The source of the GPU engine as optimised machine code; `make test` stops at unoptimised PTX."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from ..robustness.test_gpu import compile_by_nvidia

pytestmark = pytest.mark.soak


def test_source_compiles_to_machine_code() -> None:
    compile_by_nvidia(b"--gpu-architecture=sm_90")
