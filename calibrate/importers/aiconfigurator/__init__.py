"""Fits to the kernel tables that the Python package ``aiconfigurator-core`` carries.

NVIDIA publishes these timings of vLLM's, TensorRT-LLM's and SGLang's kernels under Apache-2.0. The
package is optional and never imported: its tables are read where it is installed, or from a folder.
What comes into the project are fitted parameters with their source, and a thinned sample for the
pages of profiles (``samples``).
"""

from calibrate.importers.aiconfigurator.tables import KernelTable, Tables, locate

__all__ = ["KernelTable", "Tables", "locate"]
