"""Maps the name that a driver reports for a GPU to its part in the catalogue."""

from __future__ import annotations

KNOWN = {
    "AMD Instinct MI300X": "mi300x",
    "NVIDIA A10G": "a10g",
    "NVIDIA A100 80GB PCIe": "a100-pcie",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000",
}
"""The catalogue's part for the name by which the driver calls it."""
