"""How many operations a second devices can do at most, by data type: dense, from the data sheets of their makers."""

from __future__ import annotations

import re

__all__ = ["peak_tflops"]

_H100_SXM = {"float64": 67.0, "float32": 67.0, "tf32": 494.7, "float16": 989.4, "bfloat16": 989.4, "float8": 1978.9}
# The first pattern that matches counts. Figures of data sheets that only give sparse ones are halved.
_DEVICES: tuple[tuple[str, dict[str, float]], ...] = (
    # NVIDIA GB200 NVL72 and DGX B200 data sheets
    (r"\bGB200\b", {"float32": 80.0, "tf32": 1250.0, "float16": 2500.0, "bfloat16": 2500.0, "float8": 5000.0}),
    (r"\bB200\b", {"float32": 75.0, "tf32": 1125.0, "float16": 2250.0, "bfloat16": 2250.0, "float8": 4500.0}),
    # NVIDIA H200 and H100 Tensor Core GPU data sheets, by form factor
    (r"\bH[12]00 NVL\b", {"float64": 60.0, "float32": 60.0, "tf32": 417.5, "float16": 835.5, "bfloat16": 835.5}),
    (r"\bH200\b|\bGH200\b", _H100_SXM),
    (r"\bH100 PCIe\b", {"float64": 51.0, "float32": 51.0, "tf32": 378.0, "float16": 756.0, "bfloat16": 756.0}),
    (r"\bH100\b", _H100_SXM),
    # NVIDIA A100 Tensor Core GPU data sheet
    (r"\bA100\b", {"float64": 19.5, "float32": 19.5, "tf32": 156.0, "float16": 312.0, "bfloat16": 312.0}),
    # NVIDIA A10, L4 and L40S data sheets
    (r"\bA10\b", {"float32": 31.2, "tf32": 62.5, "float16": 125.0, "bfloat16": 125.0}),
    (r"\bL4\b", {"float32": 30.3, "tf32": 60.0, "float16": 121.0, "bfloat16": 121.0, "float8": 242.5}),
    (r"\bL40S\b", {"float32": 91.6, "tf32": 183.0, "float16": 362.0, "bfloat16": 362.0, "float8": 733.0}),
    # NVIDIA V100 and T4 data sheets; neither has bfloat16 or TF32
    (r"\bV100-PCIE\b", {"float64": 7.0, "float32": 14.0, "float16": 112.0}),
    (r"\bV100-SXM", {"float64": 7.8, "float32": 15.7, "float16": 125.0}),
    (r"\bT4\b", {"float32": 8.1, "float16": 65.0}),
    # AMD Instinct MI300X, MI325X and MI250X data sheets (matrix operations; of the MI250X one of its two devices)
    (
        r"\bMI3(?:00|25)X\b",
        {"float64": 163.4, "float32": 163.4, "tf32": 653.7, "float16": 1307.4, "bfloat16": 1307.4, "float8": 2614.9},
    ),
    (r"\bMI250X\b", {"float64": 47.9, "float32": 47.9, "float16": 191.5, "bfloat16": 191.5}),
)


def peak_tflops(device_name: str | None) -> dict[str, float]:
    """Return 1e12 operations a second by data type, for a name as CUDA or ROCm reports it.

    Empty for an unknown device.
    """
    return next((peaks for pattern, peaks in _DEVICES if re.search(pattern, device_name or "")), {})
