"""The parts of ``measure_kernels.py``: inputs in memory, a case for each kernel, the clock, the sweep."""
